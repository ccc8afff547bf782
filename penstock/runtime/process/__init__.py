"""Implements a slot's process: the builder of subtasks, their threads, and the ports to clock, network and storage."""

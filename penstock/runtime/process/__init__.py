"""Implements a slot's process: what builds its subtasks, the threads that run them, and what it needs of the world."""

"""Simulates a whole cluster in one thread from one seed: the real protocol, JobMaster and runtime in a world that
misbehaves.
"""

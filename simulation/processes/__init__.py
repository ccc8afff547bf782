"""Runs the real JobMaster and the real slots in simulated processes, with the networks between them."""

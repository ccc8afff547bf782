"""Implements a subtask's output: the choice of each row's consumer, and the queues that wait for credit."""

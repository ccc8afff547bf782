"""Implements a subtask's part in checkpoints: captures, the snapshot writer and the restore."""

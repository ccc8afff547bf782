"""A subtask's part in checkpoints: what it captures, who writes it, and what it gets back."""

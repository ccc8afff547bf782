"""What one subtask decides when barriers come."""

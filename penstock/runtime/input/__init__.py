"""A subtask's input: its channels, what a restore put before them, and the gate that holds it while a job drains."""

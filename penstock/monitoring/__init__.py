"""What can be seen of a job that runs."""

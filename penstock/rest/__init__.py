"""Serves running jobs to other terminals: Flink's REST paths and JSON, a token, and a registry of the user's jobs."""

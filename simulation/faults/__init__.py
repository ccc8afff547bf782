"""Plans and injects the faults of a run, and its user's requests meanwhile."""

"""Plans and injects what goes wrong in a run, and what its user asks for meanwhile."""

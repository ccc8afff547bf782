"""Where checkpoints live: an object store, the layout of a job's directory in it, and what stands in its files."""

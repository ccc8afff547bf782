"""What runs inside a chain: row functions, and the ends that read and write batches."""

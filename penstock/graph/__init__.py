"""What was declared becomes what will run."""

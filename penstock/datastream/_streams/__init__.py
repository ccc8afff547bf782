"""What the public streams are made of; nothing here is for programs to import."""

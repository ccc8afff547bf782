"""Implements Parquet in files."""

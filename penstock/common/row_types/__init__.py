"""Defines the types of rows: columns for values, rows for columns, their texts and their evolution."""

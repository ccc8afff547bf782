"""Implements JSON in files of lines and in messages, and Debezium's envelopes."""

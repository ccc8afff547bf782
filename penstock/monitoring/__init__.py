"""Provides the observable facts of a running job."""

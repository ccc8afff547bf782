"""Defines the exit codes of commands that fail."""

from __future__ import annotations

import typer

EXIT_FAILED = 1
EXIT_USAGE = 2


def store_failed(error: Exception) -> typer.Exit:
    """Print why a store did not do what the command needs; return the exception that ends it, to be raised. An outage
    is no wrong usage.
    """
    from penstock.storage.store import StoreAway

    if not isinstance(error, StoreAway):
        return usage(str(error))
    typer.echo(f"penstock: {error}. Try again when the storage answers", err=True)
    return typer.Exit(EXIT_FAILED)


def usage(message: str) -> typer.Exit:
    """Print why the command was used wrongly; return the exception that ends it, to be raised."""
    typer.echo(f"penstock: {message}", err=True)
    return typer.Exit(EXIT_USAGE)

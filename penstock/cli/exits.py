"""Defines the exit codes of commands that fail."""

from __future__ import annotations

import typer

EXIT_FAILED = 1
EXIT_USAGE = 2


def usage(message: str) -> typer.Exit:
    """Print why the command was used wrongly; return the exception that ends it, to be raised."""
    typer.echo(f"penstock: {message}", err=True)
    return typer.Exit(EXIT_USAGE)

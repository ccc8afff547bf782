"""Defines with what a command ends that cannot do what it was asked for."""

from __future__ import annotations

import typer

EXIT_FAILED = 1
EXIT_USAGE = 2


def usage(message: str) -> typer.Exit:
    """Print why the command was used wrongly, and return its end."""
    typer.echo(f"penstock: {message}", err=True)
    return typer.Exit(EXIT_USAGE)

"""Defines the commands `penstock state ...`. Each imports what it needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from penstock.cli.exits import EXIT_FAILED, store_failed, usage

state = typer.Typer(help="Look into the state of checkpoints and savepoints.", no_args_is_help=True)

Checkpoint = Annotated[
    str,
    typer.Argument(help="A job's directory (its newest checkpoint), a chk-<n>, or a savepoint.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, with everything in it.")]


@state.command()
def inspect(
    checkpoint: Checkpoint,
    largest: Annotated[int, typer.Option("--largest", min=0, help="How many of the largest keys of each state.")] = 3,
    key_groups: Annotated[bool, typer.Option("--key-groups", help="Show keys and bytes of each key group.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show operators, states, types, keys and bytes, the largest keys, skew, and rows in flight per channel."""
    from penstock.cli.state_commands import print_inspection

    with _state_errors():
        print_inspection(checkpoint, largest, key_groups, as_json)


@state.command()
def diff(
    first: Checkpoint,
    second: Checkpoint,
    examples: Annotated[int, typer.Option("--examples", min=0, help="How many keys to name of each difference.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Compare the state of two checkpoints, key by key. Exit codes: 0 the same, 1 it differs, 2 wrong usage."""
    from penstock.cli.state_commands import print_difference

    with _state_errors():
        if print_difference(first, second, examples, as_json):
            raise typer.Exit(EXIT_FAILED)


@state.command()
def verify(
    path: Annotated[
        str,
        typer.Argument(help="A chk-<n>, a savepoint, or a job's directory: all that it retains.", show_default=False),
    ],
    as_json: AsJson = False,
) -> None:
    """Read everything, and name each damaged range. Exit codes: 0 all is whole, 1 damaged, 2 wrong usage."""
    from penstock.cli.state_commands import print_verification

    with _state_errors():
        if not print_verification(path, as_json):
            raise typer.Exit(EXIT_FAILED)


@contextmanager
def _state_errors() -> Iterator[None]:
    """End the command with exit code 2, and the reason, if there is no such state, or it cannot be read."""
    from penstock.state.backend import StateError
    from penstock.storage.store import StoreError

    try:
        yield
    except (StoreError, StateError) as error:
        raise (store_failed(error) if isinstance(error, StoreError) else usage(str(error))) from None

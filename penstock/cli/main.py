"""Runs programs and shows their checkpoints: the command `penstock`. Each command imports what is heavy itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="penstock",
    help="Run a streaming program on Spark, and look at its checkpoints.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

EXIT_USAGE = 2


def _usage(message: str) -> typer.Exit:
    typer.echo(f"penstock: {message}", err=True)
    return typer.Exit(EXIT_USAGE)


def _print_version(wanted: bool) -> None:
    if wanted:
        from penstock import __version__

        typer.echo(f"penstock {__version__}")
        raise typer.Exit()


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version, and end.")
    ] = False,
) -> None:
    """Run a streaming program on Spark, and look at its checkpoints."""


@app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
def run(
    program: Annotated[Path, typer.Argument(help="A Python file.", show_default=False)],
    arguments: Annotated[list[str] | None, typer.Argument(help="What the program is given.")] = None,
    parallelism: Annotated[int | None, typer.Option("-p", "--parallelism", min=1, help="parallelism.default")] = None,
    define: Annotated[
        list[str] | None, typer.Option("-D", metavar="KEY=VALUE", help="An option; may be given several times.")
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            "-s",
            "--from",
            metavar="PATH",
            help="Resume the job of this directory ('latest': find it), or start a new one from a chk-<n>.",
        ),
    ] = None,
    claim_mode: Annotated[
        str | None, typer.Option("-c", "--claim-mode", metavar="MODE", help="NO_CLAIM or CLAIM, with -s chk-<n>.")
    ] = None,
) -> None:
    """Run a program as its main module, with options that count before those of files.

    Exit codes: 0, 1 the job failed, 2 wrong usage, 130 interrupted, 143 terminated.
    """
    from penstock.cli.program import run_program
    from penstock.common.configuration_sources import parse_dynamic_option
    from penstock.common.options import OptionError

    if not program.is_file():
        raise _usage(f"there is no program {program}; give the path of a Python file")
    given = list(define or [])
    if parallelism is not None:
        given.append(f"parallelism.default={parallelism}")
    if resume is not None:
        given.append(f"execution.state-recovery.path={resume if resume == 'latest' else _absolute(resume)}")
    if claim_mode is not None:
        given.append(f"execution.state-recovery.claim-mode={claim_mode}")
    try:
        options = dict(parse_dynamic_option(text) for text in given)
    except OptionError as error:
        raise _usage(str(error)) from None
    raise typer.Exit(run_program(program, arguments or [], options))


def _absolute(path: str) -> str:
    return path if "://" in path else str(Path(path).absolute())


@app.command("list")
def list_jobs(
    directory: Annotated[
        str | None, typer.Argument(help="execution.checkpointing.dir; not given: what the configuration says.")
    ] = None,
) -> None:
    """List the jobs that have a log below a checkpoint directory, with their newest checkpoint and size."""
    from penstock.cli.checkpoint_tables import print_jobs
    from penstock.storage.store import StoreError

    try:
        print_jobs(directory or _configured_directory())
    except StoreError as error:
        raise _usage(str(error)) from None


@app.command()
def info(
    path: Annotated[str, typer.Argument(help="A job's directory, or a chk-<n> in it.", show_default=False)],
) -> None:
    """Show a job's log and checkpoints: entries, sizes, vertices."""
    from penstock.cli.checkpoint_tables import print_checkpoint, print_job
    from penstock.storage.opening import local_path
    from penstock.storage.store import StoreError

    try:
        folder = Path(local_path(path))
        if folder.name == "_metadata":
            folder = folder.parent
        if folder.name.startswith("chk-"):
            print_checkpoint(folder)
        else:
            print_job(folder)
    except StoreError as error:
        raise _usage(str(error)) from None


@app.command()
def options() -> None:
    """List all options: key, type, default, meaning."""
    from penstock.common.options import option_table

    typer.echo(option_table())


def _configured_directory() -> str:
    from penstock.common.configuration_sources import load_configuration
    from penstock.common.options import CheckpointingOptions, OptionError

    try:
        directory = load_configuration().get(CheckpointingOptions.CHECKPOINTS_DIRECTORY)
    except OptionError as error:
        raise _usage(str(error)) from None
    if not directory:
        raise _usage("give a checkpoint directory, or set execution.checkpointing.dir in $PENSTOCK_CONF_DIR")
    return str(directory)


if __name__ == "__main__":
    app()

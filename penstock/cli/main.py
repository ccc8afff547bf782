"""Runs programs, controls their jobs, shows checkpoints: the command `penstock`. Each command imports what it needs."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.exits import EXIT_FAILED, store_failed, usage
from penstock.cli.state_app import state

if TYPE_CHECKING:
    from penstock.common.time import Duration
    from penstock.rest.job_registry import RunningJob

app = typer.Typer(
    name="penstock",
    help="Run a streaming program on Spark, control its job, and look at its checkpoints.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(state, name="state")

Job = Annotated[
    str,
    typer.Argument(help="A running job: its id, the beginning of it, its name, or its directory.", show_default=False),
]
Aligned = Annotated[
    bool | None,
    typer.Option(
        "--aligned/--unaligned",
        help="Aligned: without rows in flight. Unaligned: fast under any load. Not given: as the job's checkpoints.",
        show_default=False,
    ),
]


class SavepointFormat(Enum):
    """Lists Flink's formats of savepoints. Here both are the same."""

    CANONICAL = "canonical"
    NATIVE = "native"


Format = Annotated[
    SavepointFormat,
    typer.Option(
        "--type",
        case_sensitive=False,
        help="Accepted as in Flink: both give the same canonical savepoint, which is self-contained.",
    ),
]
Timeout = Annotated[str, typer.Option("--timeout", metavar="DURATION", help="How long to wait, e.g. '30 s'.")]
TIMEOUT = "15 min"


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
    """Run a streaming program on Spark, control its job, and look at its checkpoints."""


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
            help="Resume the job of this directory ('latest': find it), or start a new one from a chk-<n> or a "
            "savepoint.",
        ),
    ] = None,
    ha: Annotated[
        bool,
        typer.Option(
            "--ha",
            help="For supervisors: resume the program's job, start it if there is none, end at once if it has finished "
            "(high-availability.type=filesystem).",
        ),
    ] = False,
    detached: Annotated[
        bool,
        typer.Option(
            "-d",
            "--detached",
            help="Return once the job runs. Its driver survives the terminal, and writes a log file; the job's id is "
            "printed.",
        ),
    ] = False,
    claim_mode: Annotated[
        str | None,
        typer.Option("-c", "--claim-mode", metavar="MODE", help="NO_CLAIM or CLAIM, with -s chk-<n> or a savepoint."),
    ] = None,
) -> None:
    """Run a program as its main module, with options that count before those of files.

    Exit codes: 0, 1 the job failed, 2 wrong usage, 3 another driver has taken the job over, 130 interrupted, 143
    terminated. With high availability a job that was cancelled ends with 0, so that it is not started again.
    """
    if not program.is_file():
        if str(program).startswith("-"):
            raise usage(
                f"run has no option {program}; see penstock run --help. What the program is given comes after it"
            )
        raise usage(f"there is no program {program}; give the path of a Python file")
    given = list(define or [])
    if parallelism is not None:
        given.append(f"parallelism.default={parallelism}")
    if ha:
        given.append("high-availability.type=filesystem")
    if resume is not None:
        given.append(f"execution.state-recovery.path={resume if resume == 'latest' else _absolute(resume)}")
    if claim_mode is not None:
        given.append(f"execution.state-recovery.claim-mode={claim_mode}")
    raise typer.Exit(_run(program, arguments or [], given, detached))


def _run(program: Path, arguments: list[str], given: list[str], detached: bool) -> int:
    from penstock.cli.detached_program import run_detached
    from penstock.cli.program import run_program
    from penstock.common.options import OptionError
    from penstock.common.settings.configuration_sources import parse_dynamic_option

    try:
        options = dict(parse_dynamic_option(text) for text in given)
    except OptionError as error:
        raise usage(str(error)) from None
    return (run_detached if detached else run_program)(program, arguments, options)


def _absolute(path: str) -> str:
    return path if "://" in path else str(Path(path).absolute())


@app.command()
def savepoint(
    job: Annotated[
        str | None,
        typer.Argument(
            help="A running job: its id, the beginning of it, its name, or its directory.", show_default=False
        ),
    ] = None,
    directory: Annotated[
        str | None,
        typer.Argument(help="Where to make its directory; not given: execution.checkpointing.savepoint-dir."),
    ] = None,
    aligned: Aligned = None,
    type_: Format = SavepointFormat.CANONICAL,
    timeout: Timeout = TIMEOUT,
    disposed: Annotated[
        str | None, typer.Option("--dispose", metavar="PATH", help="Delete the files of this savepoint instead.")
    ] = None,
) -> None:
    """Take a savepoint of a running job, and print its directory. The job continues."""
    from penstock.cli.control import take_savepoint

    if disposed is not None:
        if job is not None:
            raise usage("--dispose PATH deletes a savepoint, and takes no job")
        _dispose(disposed)
        return
    if job is None:
        raise usage("give a running job (`penstock list` shows them), or --dispose PATH")
    with _exit_codes():
        found = _running(job)
        typer.echo(take_savepoint(found, directory, aligned, type_.name, _duration(timeout)))


@app.command()
def stop(
    job: Job,
    drain: Annotated[
        bool,
        typer.Option(
            "--drain", help="End the sources first, so that all windows and event-time timers fire: for ever."
        ),
    ] = False,
    directory: Annotated[
        str | None,
        typer.Option("-p", "--savepoint-path", metavar="DIRECTORY", help="Where to make the savepoint's directory."),
    ] = None,
    aligned: Aligned = None,
    type_: Format = SavepointFormat.CANONICAL,
    timeout: Timeout = TIMEOUT,
) -> None:
    """Stop a running job with a savepoint, and print its directory. Continue with: penstock run -s <directory>."""
    from penstock.cli.control import stop_job

    with _exit_codes():
        found = _running(job)
        typer.echo(stop_job(found, directory, drain, aligned, type_.name, _duration(timeout)))


@app.command()
def rescale(
    job: Job,
    parallelism: Annotated[
        list[str],
        typer.Argument(help="A number for the whole job, or UID=NUMBER for single operators.", show_default=False),
    ],
    timeout: Timeout = TIMEOUT,
) -> None:
    """Let a running job continue at another parallelism, from a checkpoint that is taken for it."""
    from penstock.cli.control import rescale_job

    wanted = _parallelism(parallelism)
    with _exit_codes():
        found = _running(job)
        rescale_job(found, wanted, _duration(timeout))
        typer.echo(
            f"penstock: job {found.job_id} ({found.job_name}) runs at parallelism {' '.join(parallelism)}", err=True
        )


def _parallelism(given: list[str]) -> int | dict[str, int]:
    if len(given) == 1 and given[0].isdecimal():
        return int(given[0])
    found: dict[str, int] = {}
    for text in given:
        uid, separator, number = text.rpartition("=")
        if not separator or not uid or not number.isdecimal():
            raise usage(f"{text!r} is no parallelism: give one number for the job, or UID=NUMBER for operators")
        found[uid] = int(number)
    return found


@app.command()
def cancel(job: Job, timeout: Timeout = "2 min") -> None:
    """Cancel a running job without a savepoint, and wait until it has ended."""
    from penstock.cli.control import cancel_job

    with _exit_codes():
        found = _running(job)
        is_confirmed = cancel_job(found, _duration(timeout))
        how = "is cancelled" if is_confirmed else "has ended; its own terminal says how"
        typer.echo(f"penstock: job {found.job_id} ({found.job_name}) {how}", err=True)


@app.command()
def checkpoints(job: Job) -> None:
    """Show the newest checkpoints and savepoints of a running job."""
    from penstock.cli.control import print_checkpoints

    with _exit_codes():
        print_checkpoints(_running(job))


@app.command()
def why(
    job: Job,
    checkpoint: Annotated[
        int | None, typer.Option("--checkpoint", metavar="ID", help="Explain this one; not given: what is wrong now.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Explain a slow job or checkpoint, and name the way out. Says nothing of a healthy one."""
    from penstock.cli.live_views import print_why

    with _exit_codes():
        print_why(_running(job), checkpoint, as_json)


@app.command()
def top(job: Job, once: Annotated[bool, typer.Option("--once", help="Print one picture, and end.")] = False) -> None:
    """Show a running job's vertices, rates, pressure and checkpoints, live. End it with Ctrl-C: the job runs on."""
    from penstock.cli.live_views import show_top

    with _exit_codes():
        show_top(_running(job), once)


@app.command()
def dashboard(
    job: Job, opens: Annotated[bool, typer.Option("--open", help="Open it in a browser, too.")] = False
) -> None:
    """Print the address of a running job's dashboard. It lets whoever has it control the job."""
    from penstock.rest.job_registry import dashboard_address

    address = dashboard_address(_running(job))
    typer.echo(address)
    if opens:
        typer.launch(address)


@app.command("list")
def list_jobs(
    directory: Annotated[
        str | None, typer.Argument(help="execution.checkpointing.dir; not given: what the configuration says.")
    ] = None,
) -> None:
    """List your running jobs, and those that have a log below a checkpoint directory, with their newest checkpoint."""
    from penstock.cli.checkpoint_tables import print_jobs
    from penstock.cli.control import print_running_jobs
    from penstock.storage.store import StoreError

    any_runs = print_running_jobs()
    directory = directory or _configured_directory()
    if directory is None:
        if not any_runs:
            typer.echo("No job of yours is running. To see those that have ended, give a checkpoint directory.")
        return
    try:
        print_jobs(directory)
    except StoreError as error:
        raise store_failed(error) from None


@app.command()
def info(
    path: Annotated[
        str, typer.Argument(help="A job's directory, a chk-<n> in it, or a savepoint.", show_default=False)
    ],
) -> None:
    """Show a job's log and checkpoints, or one checkpoint or savepoint: entries, sizes, vertices."""
    from penstock.cli.checkpoint_tables import print_checkpoint, print_job, print_savepoint
    from penstock.cli.savepoint_disposal import savepoint_folder
    from penstock.storage.location import location, parent_of
    from penstock.storage.store import StoreError

    try:
        folder = location(path)
        if posixpath.basename(folder) == "_metadata":
            folder = parent_of(folder)
        savepoint_of = savepoint_folder(path)
        if savepoint_of is not None:
            print_savepoint(savepoint_of)
        elif posixpath.basename(folder).startswith("chk-"):
            print_checkpoint(folder)
        else:
            print_job(folder)
    except StoreError as error:
        raise store_failed(error) from None


@app.command()
def options(word: Annotated[str, typer.Argument(help="Only options with this in their key or meaning.")] = "") -> None:
    """List options: key, type, default, meaning."""
    from penstock.common.options import option_table

    found = option_table(word)
    if not found:
        raise usage(f"no option has {word!r} in its key or meaning; `penstock options` lists all")
    typer.echo(found)


def _configured_directory() -> str | None:
    from penstock.common.options import CheckpointingOptions, OptionError
    from penstock.common.settings.configuration_sources import load_configuration

    try:
        return load_configuration().get(CheckpointingOptions.CHECKPOINTS_DIRECTORY)
    except OptionError as error:
        raise usage(str(error)) from None


def _dispose(path: str) -> None:
    from penstock.cli.savepoint_disposal import dispose
    from penstock.storage.store import StoreError

    try:
        deleted, left = dispose(path)
    except StoreError as error:
        raise store_failed(error) from None
    kept = f"; left are files that are not part of it: {', '.join(left)}" if left else ""
    typer.echo(f"penstock: deleted {deleted} files of savepoint {path}{kept}", err=True)


def _running(named: str) -> RunningJob:
    from penstock.cli.running_jobs import NoSuchJob, find_job

    try:
        return find_job(named)
    except NoSuchJob as error:
        raise usage(str(error)) from None


def _duration(text: str) -> Duration:
    from penstock.common.time import Duration

    try:
        return Duration.parse(text)
    except ValueError as error:
        raise usage(f"--timeout: {error}") from None


@contextmanager
def _exit_codes() -> Iterator[None]:
    """End the command with exit code 1, and the reason, if what was asked of a job was not done."""
    from penstock.cli.control import ControlFailed
    from penstock.common.program.excepthook import EXIT_INTERRUPTED
    from penstock.storage.store import StoreError

    try:
        yield
    except ControlFailed as error:
        typer.echo(f"penstock: {error}", err=True)
        raise typer.Exit(EXIT_FAILED) from None
    except KeyboardInterrupt:
        typer.echo("penstock: interrupted; what the job was asked for is not taken back", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except StoreError as error:
        raise store_failed(error) from None


if __name__ == "__main__":
    app()

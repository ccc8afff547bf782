"""Defines the function that a slot's Spark task calls, as it is pickled: it needs nothing of ours to arrive."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Callable, Iterator

# What a slot imports besides PySpark, and the least version of each (as in pyproject.toml). Native wheels cannot be
# shipped with the program.
NEEDS = (("cloudpickle", "3.1"), ("msgspec", "0.20"), ("numpy", "1.26"), ("pyarrow", "20"), ("xxhash", "3.5"))

SEND_ENVIRONMENT = (
    "install it there, or send this program's environment along: venv-pack -o environment.tar.gz, then "
    "spark-submit --archives environment.tar.gz#environment (spark.archives) with "
    "PYSPARK_PYTHON=./environment/bin/python and PYSPARK_DRIVER_PYTHON=python"
)


@dataclass(frozen=True)
class SlotArguments:
    """Holds a slot's arguments at its submission. `*_ports` are ranges as (first, last)."""

    driver_host: str
    driver_port: int
    secret: bytes
    job_id: str
    slot: int
    submission: int
    job_name: str = ""
    bind_host: str | None = None
    advertised_host: str | None = None
    bind_ports: tuple[tuple[int, int], ...] = ((0, 0),)
    bind_ports_option: str = "taskmanager.data.bind-port"
    """The key of the option that names `bind_ports`."""
    advertised_port: int | None = None
    status_interval_ms: int = 500
    heartbeat_timeout_ms: int = 50_000
    search_path: tuple[str, ...] = ()
    relieves: bool = False
    hosted: bool = False
    linger_s: float = 0.0
    """The time for which a process stays that cannot end its task: Spark is to hear of its cancellation before."""
    needs: tuple[tuple[str, str], ...] = ()
    """(module, least version): looked for before anything of ours is imported."""
    files: tuple[tuple[Any, ...], ...] = ()
    """The job's archives, requirements and cached files: the fields of `penstock.spark.process.slot_files.SlotFile`."""
    entry: str = field(default="penstock.spark.process.slot_main:main")
    """module:function, called with these arguments. It returns when the task is to end as a success."""


def slot_task(arguments: SlotArguments) -> Callable[[Any], Iterator[Any]]:
    """Return the function for `mapPartitions`. A function inside a function is pickled by value, and what it carries
    are plain values: so it arrives where our package cannot be imported yet, and can report that.
    """
    fields = asdict(arguments)
    advice = SEND_ENVIRONMENT

    def run(_rows: Any) -> Iterator[Any]:
        import importlib
        import importlib.metadata
        import importlib.util
        import re
        import sys

        sys.path.extend(entry for entry in fields["search_path"] if entry not in sys.path)
        lacks = []
        for name, least in fields["needs"]:
            if importlib.util.find_spec(name) is None:
                lacks.append(name)
                continue
            try:
                found = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue  # the module is there, but no package says its version
            if [int(n) for n in re.findall(r"\d+", found)[:2]] < [int(n) for n in re.findall(r"\d+", least)]:
                lacks.append(f"{name} {least} or later (it has {found})")
        module, _, function = fields["entry"].partition(":")
        cause: ImportError | None = None
        if not lacks:
            try:
                main = getattr(importlib.import_module(module), function)
                arguments_type = importlib.import_module("penstock.spark.process.slot_task").SlotArguments
            except ImportError as error:
                cause, lacks = error, [error.name or str(error)]
        if lacks:
            version = ".".join(map(str, sys.version_info[:3]))
            raise RuntimeError(
                f"slot {fields['slot']}: Python {version} at {sys.executable} on this executor lacks "
                f"{', '.join(lacks)}: {advice}"
            ) from cause
        main(arguments_type(**fields))
        return iter(())

    return run

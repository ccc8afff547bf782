"""The function that a slot's Spark task calls, as it is pickled: it needs nothing of ours to arrive."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Callable, Iterator


@dataclass(frozen=True)
class SlotArguments:
    """What a slot is told when it is submitted. `*_ports` are ranges as (first, last)."""

    driver_host: str
    driver_port: int
    secret: bytes
    job_id: str
    slot: int
    submission: int
    bind_host: str | None = None
    advertised_host: str | None = None
    bind_ports: tuple[tuple[int, int], ...] = ((0, 0),)
    advertised_port: int | None = None
    status_interval_ms: int = 500
    heartbeat_timeout_ms: int = 50_000
    search_path: tuple[str, ...] = ()
    relieves: bool = False
    hosted: bool = False
    entry: str = field(default="penstock.spark.slot_main:main")
    """module:function, called with these arguments; it does not return."""


def slot_task(arguments: SlotArguments) -> Callable[[Any], Iterator[Any]]:
    """What to give to `mapPartitions`. A function inside a function is pickled by value, and what it carries are plain
    values: so it arrives where our package is not to be found yet, and can say so."""
    fields = asdict(arguments)

    def run(_rows: Any) -> Iterator[Any]:
        import importlib
        import sys

        sys.path.extend(entry for entry in fields["search_path"] if entry not in sys.path)
        module, _, function = fields["entry"].partition(":")
        try:
            main = getattr(importlib.import_module(module), function)
            arguments_type = importlib.import_module("penstock.spark.slot_task").SlotArguments
        except ImportError as error:
            version = ".".join(map(str, sys.version_info[:3]))
            raise RuntimeError(
                f"slot {fields['slot']}: Python {version} at {sys.executable} on this executor lacks "
                f"{error.name or error}: install penstock there (pip install penstock)"
            ) from error
        main(arguments_type(**fields))
        return iter(())

    return run

"""Describes a simulated run as data: the job, its options, and what goes wrong.

A plan holds all that is chosen before the run starts. What happens during the run (how long each thing takes, which
fault comes next and whom it hits, at which parallelism a job is resumed) is drawn from the seeds in the plan.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from simulation.faults.fault_plan import FaultPlan
from simulation.jobs.choices import PlanError, Step, unknown_name
from simulation.world.pace import Pace
from simulation.world.places import PlacePlan

FORMAT = 1
"""Grows when a plan of before would mean something else."""


class Plan(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Holds all that is chosen before a run. `told`: where the plan comes from, for its reader.

    `options`: the job's configuration. `steps`: what the job consists of, in the order in which it is declared.
    `chaining`: False gives every operator a vertex of its own. `world_seed`: draws what happens during the run.
    `interleaves`, `is_parallel`, `names_stored_state`: see `World`. `places`: how many tasks run at once; None: all of
    them. `graph_changes_seed`: draws how the graph changes at each resume; None: it stays the same.
    `declared_changes_seed`: likewise how declared types change, and where state is kept unless `names_stored_state`.
    """

    format: int = FORMAT
    told: str
    world_seed: int
    interleaves: bool = False
    is_parallel: bool = False
    pace: Pace
    options: dict[str, str]
    faults: FaultPlan
    places: PlacePlan | None = None
    graph_changes_seed: str | None = None
    declared_changes_seed: str | None = None
    names_stored_state: bool = False
    chaining: bool = True
    steps: list[Step]

    def encode(self) -> bytes:
        """Return the plan as JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    @property
    def rows(self) -> int:
        """Return the number of rows that the job's sources read."""
        return sum(_rows(step) for step in self.steps)

    @property
    def subtasks(self) -> int:
        """Return the sum of the parallelisms of all steps."""
        return sum(step.choices.get("parallelism", 1) for step in self.steps)


def _rows(step: Step) -> int:
    scripted = (row for script in step.choices.get("scripts", ()) for row in script["steps"])
    drawn: int = step.choices.get("rows", 0)
    said: int = sum(count for first, count in scripted if first is not None)
    return drawn + said


def decode_plan(data: bytes, source: str) -> Plan:
    """Return the plan that JSON says. `source`: names it in errors.

    Raises: PlanError: it is no plan, or one of another version."""
    try:
        raw = msgspec.json.decode(data)
        if not isinstance(raw, dict) or "format" not in raw:
            raise PlanError(f"{source} is no plan: a plan is a JSON object with a 'format'")
        if raw["format"] != FORMAT:
            raise PlanError(f"{source} has format {raw['format']}, and this version runs plans of format {FORMAT} only")
        plan = msgspec.convert(raw, Plan)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise PlanError(f"{source} is no plan that this version knows: {error}") from error
    # Dataclasses leave out what they do not have. Of steps, only their declaration knows what they need.
    raw.pop("steps")
    if unknown := unknown_name(raw, msgspec.to_builtins(plan)):
        raise PlanError(f"{source} is no plan that this version knows: nothing in it is called {unknown!r}")
    return plan


def read_plan(path: Path) -> Plan:
    """Return the plan in a file.

    Raises: PlanError: the file cannot be read, or holds no plan of this version."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PlanError(f"{path} cannot be read: {error.strerror}") from error
    return decode_plan(data, str(path))

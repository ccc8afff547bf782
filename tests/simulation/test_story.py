"""The trace says what each subtask does for each checkpoint, and a story is what is asked for, and no other line."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

import pytest

from simulation.command_line import main
from simulation.plans.running import Verdict, plan_as_read, run_plan
from simulation.scenarios import run_scenario
from simulation.world.trace import EVERYONE, HEADER, About, Story, TraceLine, parse_story

TURNS = " turns the barriers of checkpoint "


@cache
def traced(seed: int) -> Verdict:
    return run_plan(plan_as_read(seed), with_trace=True, seed=seed)


def traces() -> Iterator[Verdict]:
    return map(traced, range(300))


@pytest.fixture(scope="module")
def verdict() -> Verdict:
    """Return a run in which barriers turn at their timeout, and checkpoints of one job complete."""
    return next(
        v
        for v in traces()
        if v.published >= 2
        and v.unaligned
        and any(TURNS in x.what for x in v.trace)
        and " 1 drivers" in v.summary
        and not any("savepoint" in fault or "rescale" in fault for fault in v.faults)
    )


def test_every_complete_checkpoint_has_a_snapshot_of_each_subtask_before_it(verdict: Verdict) -> None:
    complete = 0
    taken: dict[int, set[tuple[int, int]]] = defaultdict(set)
    unaligned: dict[int, int] = defaultdict(int)
    for line in verdict.trace:
        if " snapshot of checkpoint " in line.what:
            (number,) = line.about.checkpoints
            (subtask,) = line.about.subtasks
            assert f"vertex {subtask[0]} subtask {subtask[1]} takes its" in line.what
            assert re.search(r"applied \[.*\] emitted \[.*\]", line.what)
            taken[number].add(subtask)
            unaligned[number] += "its unaligned snapshot" in line.what
        elif found := re.fullmatch(r"checkpoint (\d+) is complete: (\d+) subtasks, (\d+) unaligned", line.what):
            number, subtasks, turned = map(int, found.groups())
            # A barrier may turn in the output queue after the aligned snapshot.
            assert len(taken[number]) == subtasks and unaligned[number] <= turned <= subtasks
            complete += 1
    assert complete == verdict.published >= 2


def test_a_turn_at_the_timeout_is_told_before_its_snapshot(verdict: Verdict) -> None:
    turns = [i for i, line in enumerate(verdict.trace) if TURNS in line.what]
    assert turns
    for place in turns:
        assert verdict.trace[place].what.endswith(("(an alignment timeout)", ": it is overdue)"))
        assert "takes its unaligned snapshot" in verdict.trace[place + 1].what


def test_barriers_turn_in_output_queues_somewhere() -> None:
    turns = (line for run in traces() for line in run.trace if "unaligned in the output queue of" in line.what)
    assert next(turns).about.subtasks


def test_each_subtask_is_restored_in_each_generation(verdict: Verdict) -> None:
    restored = [line for line in verdict.trace if " is restored: " in line.what]
    deployed = [line for line in verdict.trace if ": Deploy " in line.what]
    last = max(subtask for line in verdict.trace for subtask in line.about.subtasks)
    assert {line.about.subtasks for line in restored} >= {((0, 0),), (last,)}
    assert deployed and all(re.search("from (scratch|checkpoint [0-9]+)$", line.what) for line in deployed)
    # A job that a killed driver leaves behind goes on from a checkpoint, and the trace says from which.
    for run in traces():
        completed = {c for line in run.trace if " is complete: " in line.what for c in line.about.checkpoints}
        origins = {c for line in run.trace if ": Deploy " in line.what for c in line.about.checkpoints}
        assert origins <= completed
        if origins:
            return
    raise AssertionError("nothing is ever restored")


def test_the_story_of_a_checkpoint_in_a_subtask(verdict: Verdict) -> None:
    done = {c for line in verdict.trace if " is complete: " in line.what for c in line.about.checkpoints}
    turned = next(line.about for line in verdict.trace if TURNS in line.what and set(line.about.checkpoints) <= done)
    (number,), ((vertex, subtask),) = turned.checkpoints, turned.subtasks
    story = parse_story([f"checkpoint={number}", f"vertex={vertex}", f"subtask={subtask}"])
    told = [line for line in verdict.trace if story.tells(line)]
    assert 10 < len(told) < len(verdict.trace) / 4
    assert [line.about for line in told if "takes its" in line.what] == [turned]
    for line in told:
        about, is_for_all = line.about, line.about.everyone or line.process in ("FAULT", "CHECK")
        is_of_subtask = not about.subtasks or (vertex, subtask) in about.subtasks
        assert is_for_all or (about.checkpoints == (number,) and is_of_subtask)
    text = "".join(map(str, told))
    order = [
        text.index(word)
        for word in (": TriggerCheckpoint ", "takes its", ": SlotAck ", "is complete", ": CheckpointEnded")
    ]
    assert order == sorted(order)


FRAME = TraceLine(1.0, "d0s3.0.0", "<- slot 1: AlignedBarrier", About((17,), ((2, 3),)))


@pytest.mark.parametrize(
    ("words", "line", "is_told"),
    [
        ("checkpoint=17", FRAME, True),
        ("checkpoint=18", FRAME, False),
        ("subtask=3", FRAME, True),
        ("subtask=3 vertex=2 checkpoint=17 process=d0s3", FRAME, True),
        ("subtask=2", FRAME, False),
        ("vertex=1 subtask=3", FRAME, False),
        ("process=d0s3.0.0", FRAME, True),
        ("process=d0", FRAME, False),
        ("process=d0s", FRAME, False),
        ("checkpoint=17 subtask=5", TraceLine(1.0, "log", "checkpoint 17 is complete", About((17,))), True),
        ("subtask=5", TraceLine(1.0, "log", "checkpoint 17 is complete", About((17,))), False),
        ("checkpoint=17", TraceLine(1.0, "d0", "works on 'log'"), False),
        ("process=d0", TraceLine(1.0, "d0", "works on 'log'"), True),
        ("checkpoint=17", TraceLine(1.0, "d0s1.0.0", "KILLED", EVERYONE), True),
        ("process=d0s3", TraceLine(1.0, "d0s1.0.0", "KILLED", EVERYONE), False),
        ("process=d0s3 checkpoint=4", TraceLine(1.0, "FAULT", "kill_slot"), True),
        ("subtask=9", TraceLine(1.0, "CHECK", "sink 0: 1 rows lost"), True),
    ],
)
def test_which_lines_tell_a_story(words: str, line: TraceLine, is_told: bool) -> None:
    assert parse_story(words.split()).tells(line) is is_told


def test_without_a_question_every_line_is_told(verdict: Verdict) -> None:
    assert all(map(Story().tells, verdict.trace))


def test_the_command_line_prints_a_story_below_the_names_of_its_columns(
    verdict: Verdict, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--seeds", str(verdict.seed), "--story", "checkpoint=2", "subtask=0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    story = Story(checkpoint=2, subtask=0)
    assert lines[1] == HEADER == "   time ms process      what"
    told = [str(line) for line in verdict.trace if story.tells(line)]
    assert lines[2 : 2 + len(told)] == told


@pytest.mark.parametrize("word", ["checkpoint", "checkpoint=many", "colour=3", "subtask=-1"])
def test_a_story_of_something_else_is_refused(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--seeds", "8", "--story", word])
    assert ended.value.code == 2
    assert f"--story {word}: write checkpoint=N, vertex=N, subtask=N" in capsys.readouterr().err


def test_checkpoints_of_a_job_that_starts_from_a_savepoint_are_told() -> None:
    trace = run_scenario("stop-takes-nothing-behind-its-snapshot", 1, with_trace=True).trace
    starts = [number for number, line in enumerate(trace) if line.what == "starts, after 0 log entries"]
    assert len(starts) == 2
    assert any(line.process == "log" and " is complete" in line.what for line in trace[starts[1] :])

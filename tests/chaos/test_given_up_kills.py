"""Gives up the rows in flight of a checkpoint on a real Spark between kills: what arrives is the input without exactly
the rows that the job reports as lost, on the edges that it names.
"""

from __future__ import annotations

import os
import random
import re
import signal
from collections import Counter
from pathlib import Path

import pytest

from penstock.protocol.values.metadata import Metadata
from tests.chaos.test_broadcast_kills import newest_checkpoint
from tests.chaos.test_kills import kill_slots
from tests.chaos.test_upgrade_kills import KEYS, ROWS, SMALL, build, go_on, kill_one, per_key
from tests.spark.small_jobs import KEPT, checkpoints, committed, environment, restarts, wait_until
from tests.spark.test_savepoints import UNALIGNED, WAIT_S, finish

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

REPORTED = re.compile(r"^\S+ WARN \[given up\]   (\S+)\[(\d+) -> (\d+)\]: (\d+) rows, \d+ bytes$", re.MULTILINE)


def edge_to(metadata: Metadata, name: str) -> str:
    """Return the edge that leads to a vertex whose name begins so."""
    (found,) = [e.name for e in metadata.edges if metadata.vertices[e.target].name.startswith(name)]
    return found


@pytest.mark.parametrize("channels", ["all", "of one edge"])
def test_what_arrives_is_the_input_without_the_rows_that_were_given_up(
    channels: str, tmp_path: Path, spark_session: object, capfd: pytest.CaptureFixture[str]
) -> None:
    out, chance = tmp_path / "out", random.Random(channels)
    options = {**checkpoints(tmp_path / "checkpoints"), **KEPT, **UNALIGNED, **SMALL, **restarts(1000)}
    client = build(environment(2, **options), out, False).execute_async("given up")
    assert len(kill_slots(client, chance, 2)) == 2
    go_on(client)
    directory = tmp_path / "checkpoints" / str(client.get_job_id())
    client.cancel().result(WAIT_S)
    client.get_job_execution_result().exception(WAIT_S)
    resumed_from = newest_checkpoint(directory)
    assert resumed_from is not None
    to_parse, to_counts, to_forgotten = (edge_to(resumed_from, name) for name in ("parse", "counts", "forgotten"))

    options["execution_state__recovery_path"] = str(directory)
    key = "execution_state__recovery_without__channel__state_checkpoint__id"
    options[key] = str(resumed_from.checkpoint_id)
    if channels == "of one edge":
        options["penstock_state__recovery_without__channel__state_channels"] = to_forgotten
    options["execution_checkpointing_interval"] = "2 s"  # the first kill comes before the first checkpoint
    capfd.readouterr()
    client = build(environment(2, **options), out, False).execute_async("given up")
    wait_until(lambda: client.report().state == "RUNNING" and all(client.report().slot_pids), "the job runs again")
    # A restart from the same checkpoint gives up the same rows; one from a later checkpoint gives up none.
    os.kill(client.report().slot_pids[1] or 0, signal.SIGKILL)
    wait_until(lambda: client.report().restarts >= 1, "the restart")
    go_on(client, drained=False)
    told = capfd.readouterr().err
    kill_one(client, "behind the next checkpoint")
    restored = [recovery.restored_checkpoint for recovery in client.report().recoveries]
    assert restored[0] == resumed_from.checkpoint_id and restored[-1] > restored[0], restored
    finish(client, out)

    said = f"rows that were in flight in checkpoint {resumed_from.checkpoint_id} are given up"
    assert said in told, told
    lost = Counter[str]()
    for edge, _, _, rows in REPORTED.findall(told.partition(said)[2].partition(said)[0]):
        lost[edge] += int(rows)
    assert f"{lost.total()} {said}" in told
    assert lost.keys() == ({to_forgotten} if channels == "of one edge" else {to_parse, to_counts, to_forgotten})
    assert 0 < lost.total() < ROWS // 2
    arrived = per_key(committed(out))
    never_counted = never_written = 0
    for key_, values in arrived.items():
        numbers = [n for n, _, _ in values]
        assert len(set(numbers)) == len(numbers), "nothing is there twice"
        assert [again for _, _, again in values] == list(range(1, len(values) + 1)), "in the order of the rows"
        never_counted += len(range(key_, ROWS, KEYS)) - numbers[-1]
        never_written += numbers[-1] - len(numbers)
    assert never_counted == lost[to_parse] + lost[to_counts]
    assert never_written == lost[to_forgotten]

"""Tests that what a job would be refused by is found before anything is started, Spark least of all."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from penstock.common.configuration import Configuration
from penstock.graph.compatibility import IncompatibleGraph
from penstock.graph.fit import fitted
from penstock.graph.job_graph import JobGraph
from penstock.jobmaster.identity import CheckpointToStartFrom, JobIdentity, RestoreSourceError
from penstock.jobmaster.job_recovery import check_fit
from penstock.protocol.restore.given_up import RowsToGiveUp
from penstock.protocol.values.log_entries import CheckpointEntry, Ended
from penstock.protocol.values.messages import SlotAck
from penstock.protocol.values.metadata import (
    FORMAT_VERSION,
    ChannelCapture,
    Committable,
    EnumeratorState,
    InflightRange,
    Metadata,
    OutputCut,
)
from penstock.storage.layout import metadata_path
from penstock.storage.log import append, log_length, newest_checkpoint
from penstock.storage.metadata_file import read_metadata
from penstock.storage.opening import open_store
from penstock.storage.sealed import seal
from penstock.storage.store import ObjectStore
from penstock.storage.store_settings import StoreSettings
from tests.unit.jobmaster.manual_ports import Directories
from tests.unit.jobmaster.master_world import DIRECTORY, JOB_ID, World, checkpoint_entries, two_vertices

RESUMED = JobIdentity(JOB_ID, DIRECTORY, resume=True)
OTHER = "f" * 32

Identify = Callable[[Directories], JobIdentity]


@pytest.fixture
def ran() -> Directories:
    directories = Directories()
    World(directories=directories).at(250.0)
    return directories


def newest(directories: Directories) -> CheckpointEntry:
    store = directories.open(DIRECTORY, False)
    entry = newest_checkpoint(store, log_length(store))
    assert entry is not None
    return entry


def from_newest(directories: Directories) -> JobIdentity:
    start = CheckpointToStartFrom(DIRECTORY, newest(directories).checkpoint_id)
    return JobIdentity(OTHER, f"/checkpoints/{OTHER}", start_from=start)


def refused(graph: JobGraph, identity: JobIdentity, directories: Directories, says: str) -> None:
    with pytest.raises(RestoreSourceError, match=rf"(?s)^execution\.state-recovery\.path: .*{says}"):
        check_fit(graph, identity, directories.open, False)


def wider(parallelism: int) -> JobGraph:
    graph = two_vertices(parallelism)
    return replace(graph, vertices=tuple(replace(v, max_parallelism=256) for v in graph.vertices))


def renamed() -> JobGraph:
    graph = two_vertices()
    source, sink = graph.vertices
    operator = replace(sink.operators[0], uid="c" * 32)
    return replace(graph, vertices=(source, replace(sink, operators=(operator,))))


@pytest.mark.parametrize("identify", [lambda _: RESUMED, from_newest])
def test_a_program_that_does_not_fit(ran: Directories, identify: Identify) -> None:
    identity = identify(ran)
    check_fit(two_vertices(), identity, ran.open, False)
    check_fit(two_vertices(128), identity, ran.open, False)
    refused(wider(200), identity, ran, "vertex 'numbers' has parallelism 200 now, .* run it with at most 128")
    refused(renamed(), identity, ran, "the program has no operator 'list' any more")
    found = read_metadata(ran.open(DIRECTORY, False), newest(ran).path)
    committed = [msgspec.structs.replace(subtask, committables=[]) for subtask in found.subtasks]
    fitted(renamed(), msgspec.structs.replace(found, subtasks=committed, unconfirmed_commits=[]), True)


@pytest.mark.parametrize("identify", [lambda _: RESUMED, from_newest])
def test_rows_of_a_channel_that_there_is_not(ran: Directories, identify: Identify) -> None:
    identity, checkpoint_id = identify(ran), newest(ran).checkpoint_id
    says = rf"checkpoint {checkpoint_id} has no edge or channel 'a-b-0-1'.* The checkpoint holds no rows in flight"
    with pytest.raises(RestoreSourceError, match=says):
        check_fit(two_vertices(), identity, ran.open, False, RowsToGiveUp(checkpoint_id, ("a-b-0-1",)))
    check_fit(two_vertices(), identity, ran.open, False, RowsToGiveUp(checkpoint_id, ("a-b-0-0[0 -> 1]",)))
    key = "state-recovery.without-channel-state"
    options = {f"execution.{key}.checkpoint-id": str(checkpoint_id), f"penstock.{key}.channels": "a-b-0-1"}
    world = World(options, directories=ran, identity=identity, incarnation="two")
    assert world.master.outcome is not None and re.search(says, str(world.master.outcome.error))


def with_user_uids(metadata: Metadata) -> Metadata:
    vertices = [
        msgspec.structs.replace(v, user_uids=[f"my {name}" for name in v.operator_names]) for v in metadata.vertices
    ]
    return msgspec.structs.replace(metadata, vertices=vertices)


@pytest.mark.parametrize("is_unconfirmed", [False, True])
def test_a_sink_that_is_gone_is_named_if_its_output_waits_to_be_committed(
    ran: Directories, is_unconfirmed: bool
) -> None:
    """[It was found by the commit after Spark had started, and the message named its hash.]"""
    found = with_user_uids(read_metadata(ran.open(DIRECTORY, False), newest(ran).path))
    waiting = [Committable(found.vertices[1].operators[0], b"file")]
    if is_unconfirmed:
        found = msgspec.structs.replace(found, unconfirmed_commits=waiting)
    else:
        subtasks = [msgspec.structs.replace(found.subtasks[0], committables=waiting), *found.subtasks[1:]]
        found = msgspec.structs.replace(found, subtasks=subtasks)
    fitted(two_vertices(), found, False)
    says = r"sink 'list' \(uid 'my list'\): the program has no such sink any more, .* output .* waits to be committed"
    for ignore_unclaimed_state in (False, True):
        with pytest.raises(IncompatibleGraph, match=says):
            fitted(renamed(), found, ignore_unclaimed_state)


def test_an_operator_that_was_a_source_is_named(ran: Directories) -> None:
    found = with_user_uids(read_metadata(ran.open(DIRECTORY, False), newest(ran).path))
    sink = found.vertices[1].operators[0]
    found = msgspec.structs.replace(found, enumerators=[EnumeratorState(sink, b"splits")])
    with pytest.raises(IncompatibleGraph, match=r"source 'list' \(uid 'my list'\): .* no source"):
        fitted(two_vertices(), found, True)


class WithRowsInFlight(World):
    """A job whose slot 1 stores nothing but a row in flight."""

    def _acknowledged(self, slot: int, checkpoint_id: int, path: str | None) -> SlotAck:
        ack = super()._acknowledged(slot, checkpoint_id, path)
        if slot != 1:
            return ack
        source, sink = ack.subtasks
        piece = InflightRange(0, 1, 0, 0, len(b"segment"), 0)
        sent = OutputCut("a-b-0-0", [0, 1], [ChannelCapture(1, [piece], [])])
        source = msgspec.structs.replace(source, outputs=[sent], keyed=[])
        return msgspec.structs.replace(ack, subtasks=[source, sink])


@pytest.mark.parametrize("is_truncated", [False, True])
@pytest.mark.parametrize("identify", [lambda _: RESUMED, from_newest])
def test_a_lost_file_that_held_nothing_but_rows_that_are_given_up(identify: Identify, is_truncated: bool) -> None:
    directories = Directories()
    WithRowsInFlight(directories=directories).at(150.0)
    identity, checkpoint_id = identify(directories), newest(directories).checkpoint_id
    store = directories.stores[DIRECTORY]
    (path,) = [path for path in store.list("shared") if f"_s1_c{checkpoint_id}_" in path]
    store.delete(path)
    if is_truncated:
        store.put(path, [b"seg"])

    def run(name: str, options: dict[str, str]) -> World:
        own = identity if identity.resume else replace(identity, directory=f"/checkpoints/{name}")
        return World(options, directories=directories, identity=own, incarnation=name)

    refused = run("whole", {})
    assert refused.master.outcome is not None and path in str(refused.master.outcome.error)
    key = "state-recovery.without-channel-state"
    give_up = {f"execution.{key}.checkpoint-id": str(checkpoint_id)}
    refused = run("others", give_up | {f"penstock.{key}.channels": "a-b-0-0[0 -> 0]"})
    assert refused.master.outcome is not None and path in str(refused.master.outcome.error)
    check_fit(two_vertices(), identity, directories.open, False, RowsToGiveUp(checkpoint_id))
    world = run("without", give_up)
    assert world.master.outcome is None and world.console.warnings[0].startswith("1 rows that were in flight")


def test_a_job_has_no_checkpoint_of_its_own_that_the_option_would_mean_later(ran: Directories) -> None:
    """A configuration that several jobs share names a checkpoint whose rows are given up, of some other job."""
    names = {"execution.state-recovery.without-channel-state.checkpoint-id": "7"}
    fresh = World(names, directories=Directories())
    fresh.at(250.0)
    assert checkpoint_entries(fresh)[0] == 8
    before = newest(ran).checkpoint_id
    assert before < 7
    resumed = World(names, directories=ran, resume=True, incarnation="two")
    resumed.at(150.0)
    assert next(own for own in checkpoint_entries(resumed) if own > before) == 8


def test_it_is_refused_in_the_words_that_the_job_master_has(ran: Directories) -> None:
    metadata = read_metadata(ran.open(DIRECTORY, False), newest(ran).path)
    with pytest.raises(IncompatibleGraph) as said:
        fitted(renamed(), metadata, False)
    world = World(directories=ran, resume=True, incarnation="two", graph=renamed())
    assert world.master.outcome is not None and str(said.value) in str(world.master.outcome.error)


@pytest.mark.parametrize(
    "data, says",
    [
        (seal("checkpoint", FORMAT_VERSION + 1, b'{"of": "the future"}'), rf"version {FORMAT_VERSION + 1}"),
        (b"rubbish", "is damaged"),
    ],
)
@pytest.mark.parametrize("identify", [lambda _: RESUMED, from_newest])
def test_a_checkpoint_that_cannot_be_read(ran: Directories, data: bytes, says: str, identify: Identify) -> None:
    identity, path = identify(ran), newest(ran).path
    store = ran.open(DIRECTORY, False)
    store.delete(path)
    if identity.resume:
        check_fit(two_vertices(), identity, ran.open, False)
    store.create(path, data)
    refused(two_vertices(), identity, ran, says)


def test_a_job_that_kept_nothing(ran: Directories) -> None:
    store = ran.open(DIRECTORY, False)
    append(store, Ended(log_length(store), "one", "CANCELED", []))
    refused(two_vertices(), RESUMED, ran, r"has ended \(CANCELED\) and kept no checkpoint")


def test_a_job_that_never_had_a_checkpoint_goes_on_from_what_it_started_from(ran: Directories) -> None:
    start = from_newest(ran)
    World(directories=ran, identity=start, incarnation="two", options={"execution.checkpointing.interval": "1 h"})
    assert start.directory is not None
    assert newest_checkpoint(ran.stores[start.directory], log_length(ran.stores[start.directory])) is None
    resumed = JobIdentity(OTHER, start.directory, resume=True)
    check_fit(two_vertices(), resumed, ran.open, False)
    refused(renamed(), resumed, ran, "the program has no operator 'list' any more")


def test_a_fresh_job_and_one_that_cannot_be_looked_at_now_are_let_through(ran: Directories) -> None:
    check_fit(renamed(), JobIdentity(OTHER, None), ran.open, False)
    check_fit(renamed(), JobIdentity(OTHER, f"/checkpoints/{OTHER}", resume=True), ran.open, False)


class OnDisk(Directories):
    """The job's directories as they are on a real file system."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root

    def open(self, directory: str, create: bool) -> ObjectStore:
        return open_store(str(self.root / directory.lstrip("/")), StoreSettings(fsync=False), create_root=create)


def test_spark_is_not_started_for_a_program_that_is_refused(tmp_path: Path) -> None:
    from penstock.spark.executor import SparkExecutor
    from penstock.spark.session import is_running

    files = OnDisk(tmp_path)
    World(directories=files).at(250.0)
    directory = tmp_path / DIRECTORY.lstrip("/")
    entry = newest(files)
    assert (directory / metadata_path(entry.checkpoint_id)).is_file()
    ours = tmp_path / "ours"
    was_running = is_running()  # by other tests, where all are run in one process
    cases: list[tuple[Path, dict[str, str]]] = [
        (directory, {}),
        (directory / f"chk-{entry.checkpoint_id}", {"pipeline.job-id": OTHER}),
    ]
    for path, more in cases:
        configuration = Configuration(
            {
                "execution.checkpointing.interval": "1 s",
                "execution.checkpointing.dir": str(ours),
                "execution.state-recovery.path": str(path),
                **more,
            }
        )
        with pytest.raises(RestoreSourceError, match="run it with at most 128"):
            SparkExecutor().submit(wider(200), configuration)
    assert is_running() == was_running and not ours.exists(), "nor is anything left behind"


def test_a_fresh_start_where_a_log_is(ran: Directories) -> None:
    with pytest.raises(RestoreSourceError, match=rf"^pipeline\.job-id {JOB_ID}: .*has a log already.* -s, "):
        check_fit(two_vertices(), JobIdentity(JOB_ID, DIRECTORY), ran.open, False)
    check_fit(two_vertices(), JobIdentity(OTHER, f"/checkpoints/{OTHER}"), ran.open, False)

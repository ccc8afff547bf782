"""Tests which job a program is: fresh, resumed, or new from a checkpoint; and what is said when that is not clear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.common.configuration import Configuration
from penstock.common.options import OptionError
from penstock.jobmaster.identity import CheckpointToStartFrom, JobIdentity, RestoreSourceError, identify
from penstock.jobmaster.job_recovery import check_fit
from penstock.storage.log import newest_checkpoint
from tests.unit.jobmaster.manual_ports import Directories
from tests.unit.jobmaster.master_world import DIRECTORY, JOB_ID, World, two_vertices

OTHER = "f" * 32


def asked(directories: Directories | None = None, name: str = "job", **options: str) -> JobIdentity:
    settings = {"execution.checkpointing.interval": "1 s", "execution.checkpointing.dir": "file:///checkpoints"}
    settings.update({key.replace("_", "."): value for key, value in options.items()})
    configuration = Configuration({k: v for k, v in settings.items() if v})
    return identify(configuration, name, lambda: OTHER, (directories or Directories()).open)


def with_path(path: str, directories: Directories | None = None, name: str = "job", **options: str) -> JobIdentity:
    return asked(directories, name, **{"execution.state-recovery.path": path}, **options)


def ran(job_id: str, name: str, directories: Directories) -> Directories:
    identity = JobIdentity(job_id, f"/checkpoints/{job_id}")
    World(directories=directories, identity=identity, graph=two_vertices(1, name)).at(60.0)
    # A store of the parent directory sees the jobs' directories below it.
    for path in directories.stores[f"/checkpoints/{job_id}"].list(""):
        directories.open("/checkpoints", True).create(f"{job_id}/{path}", b"")
    return directories


def test_a_fresh_job_has_a_random_id_and_a_directory_of_its_own() -> None:
    assert asked() == JobIdentity(OTHER, f"/checkpoints/{OTHER}")
    assert asked(None, "job", **{"pipeline.job-id": JOB_ID}) == JobIdentity(JOB_ID, DIRECTORY)


def test_without_a_directory_or_checkpoints_nothing_is_stored_in_files() -> None:
    assert asked(None, "job", **{"execution.checkpointing.dir": ""}).directory is None
    assert asked(None, "job", **{"execution.checkpointing.storage": "jobmanager"}).directory is None
    assert asked(None, "job", **{"execution.checkpointing.interval": ""}).directory is None


def test_filesystem_storage_needs_a_directory() -> None:
    with pytest.raises(OptionError, match=r"execution\.checkpointing\.dir must name a directory"):
        asked(None, "job", **{"execution.checkpointing.storage": "filesystem", "execution.checkpointing.dir": ""})


@pytest.mark.parametrize("path", [f"{DIRECTORY}/chk-7", f"{DIRECTORY}/chk-7/", f"file://{DIRECTORY}/chk-7/_metadata"])
def test_a_checkpoint_starts_a_new_job(path: str) -> None:
    identity = with_path(path)
    assert identity == JobIdentity(OTHER, f"/checkpoints/{OTHER}", False, CheckpointToStartFrom(DIRECTORY, 7))
    assert identity.start_from is not None and identity.start_from.path == f"{DIRECTORY}/chk-7"


def test_a_jobs_directory_resumes_it() -> None:
    directories = ran(JOB_ID, "job", Directories())
    assert with_path(DIRECTORY, directories) == JobIdentity(JOB_ID, DIRECTORY, resume=True)
    assert with_path(DIRECTORY + "/", directories).resume


def test_a_resumed_job_keeps_its_id() -> None:
    directories = ran(JOB_ID, "job", Directories())
    with pytest.raises(RestoreSourceError, match=JOB_ID):
        with_path(DIRECTORY, directories, **{"pipeline.job-id": OTHER})


def test_resuming_needs_checkpoints() -> None:
    with pytest.raises(OptionError, match=r"execution\.checkpointing\.interval"):
        with_path(DIRECTORY, ran(JOB_ID, "job", Directories()), **{"execution.checkpointing.interval": ""})


def test_what_is_no_jobs_directory_is_refused_by_name() -> None:
    with pytest.raises(RestoreSourceError, match=r"/checkpoints/somewhere .*chk-<n>"):
        with_path("/checkpoints/somewhere")
    with pytest.raises(RestoreSourceError, match="does not exist"):
        with_path(DIRECTORY)
    empty = Directories()
    empty.open(DIRECTORY, True)
    with pytest.raises(RestoreSourceError, match="no job's log"):
        with_path(DIRECTORY, empty)


def test_latest_is_the_only_job_of_this_name() -> None:
    directories = ran(OTHER, "another", ran(JOB_ID, "job", Directories()))
    assert with_path("latest", directories) == JobIdentity(JOB_ID, DIRECTORY, resume=True)
    assert with_path("latest", directories, "another").job_id == OTHER


class Overtaken:
    """A store that is one step behind: its driver completes checkpoints before the first `_metadata` is read."""

    def __init__(self, store: Any, go_on: Callable[[], None]) -> None:
        self._store = store
        self._go_on: Callable[[], None] | None = go_on

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, path: str, *range_: int) -> bytes:
        if path.endswith("_metadata") and self._go_on is not None:
            go_on, self._go_on = self._go_on, None
            go_on()
        return self._store.get(path, *range_)  # type: ignore[no-any-return]


def test_latest_finds_a_job_whose_driver_goes_on() -> None:
    """Deletes its newest checkpoint between two looks, and the job had no name then."""
    directories = Directories()
    world = World(directories=directories, identity=JobIdentity(JOB_ID, DIRECTORY), graph=two_vertices(1, "job"))
    world.at(60.0)
    store = directories.stores[DIRECTORY]
    for path in store.list(""):
        directories.open("/checkpoints", True).create(f"{JOB_ID}/{path}", b"")
    before = newest_checkpoint(store)
    directories.stores[DIRECTORY] = Overtaken(store, lambda: world.at(500.0))  # type: ignore[assignment]
    assert with_path("latest", directories) == JobIdentity(JOB_ID, DIRECTORY, resume=True)
    assert before is not None and before.path not in store.list("")
    directories.stores[DIRECTORY] = Overtaken(store, lambda: world.at(900.0))  # type: ignore[assignment]
    identity = JobIdentity(JOB_ID, DIRECTORY, resume=True)
    found = check_fit(two_vertices(1, "job"), identity, directories.open, False)
    assert found is not None and found.metadata.checkpoint_id > before.checkpoint_id + 1


def test_latest_of_several_or_of_none_says_what_there_is() -> None:
    directories = ran(OTHER, "job", ran(JOB_ID, "job", Directories()))
    with pytest.raises(RestoreSourceError) as several:
        with_path("latest", directories)
    assert DIRECTORY in str(several.value) and OTHER in str(several.value)
    assert with_path("latest", directories, **{"pipeline.job-id": OTHER}).job_id == OTHER
    with pytest.raises(RestoreSourceError, match="no job called 'nobody'"):
        with_path("latest", directories, "nobody")
    with pytest.raises(RestoreSourceError, match=r"execution\.checkpointing\.dir"):
        with_path("latest", directories, **{"execution.checkpointing.dir": ""})

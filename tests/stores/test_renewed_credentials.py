"""Tests a job whose credentials expire while it runs, because its user's profile is written anew by another program."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.buckets.faulty_proxy import FaultyProxy
from tests.buckets.servers import BUCKET, running
from tests.reporting_driver import Report, runs
from tests.spark.small_jobs import committed
from tests.stores.test_jobs import LIMIT_S, ShortStarts, expected
from tools.object_stores import Server

pytestmark = [pytest.mark.spark, pytest.mark.timeout(2 * LIMIT_S)]
BOTH_VALID_S = 1.0
"""The time in which old keys are valid after the new ones are there, as those of a role are for minutes."""


@pytest.fixture
def moto(tmp_path: Path) -> Iterator[Server]:
    """Return a server that takes any keys."""
    with running("moto", tmp_path / "moto") as server:
        yield server


class Profile:
    """Writes the file that drivers and slots read their keys from."""

    def __init__(self, path: Path, proxy: FaultyProxy) -> None:
        self._path = path
        self._proxy = proxy
        self._key = ""

    def give(self, key: str) -> None:
        """Give new keys, in one step."""
        written = self._path.with_suffix(".new")
        written.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = secret-{key}\n", "utf-8")
        written.rename(self._path)
        self._key = key

    def expire(self) -> None:
        self._proxy.expired_keys.add(self._key)

    def renew(self, key: str) -> None:
        """Give new keys before the old ones expire."""
        old = self._key
        self.give(key)
        time.sleep(BOTH_VALID_S)
        self._proxy.expired_keys.add(old)


def fails_or_completes(checkpoints: int) -> Callable[[Report], bool]:
    """Return what is true of reports once a checkpoint has failed, or so many have completed."""
    return lambda report: report.failed > 0 or runs(checkpoints)(report)


def test_a_job_runs_on_while_its_credentials_are_renewed(
    moto: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Renews them twice in time, which no checkpoint notices, and once too late, which fails checkpoints until then."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    with FaultyProxy(moto.port) as proxy:
        profile = Profile(tmp_path / "credentials", proxy)
        profile.give("first")
        starts = ShortStarts(tmp_path, None, f"s3://{BUCKET}/renewed", **{"s3.endpoint": proxy.url})
        driver = starts.start()
        deadline = time.monotonic() + LIMIT_S
        seen = driver.await_report(runs(3), deadline)
        for key in ("second", "third"):
            profile.renew(key)
            seen = driver.await_report(fails_or_completes(seen.completed + 5), deadline)
            assert (seen.state, seen.restarts, seen.failed) == ("RUNNING", 0, 0), driver.log()
        profile.expire()
        seen = driver.await_report(lambda report: report.failed > 0, deadline)
        profile.give("fourth")
        seen = driver.await_report(runs(seen.completed + 5), deadline)
        assert (seen.state, seen.restarts) == ("RUNNING", 0), driver.log()
        assert f"the credentials for s3://{BUCKET} have expired (400 ExpiredToken" in driver.log()
        driver.await_end(deadline)
    assert committed(starts.out) == expected(ShortStarts.rows)

"""Tests buckets that fail: what is tried again, what a lost answer means, and what messages say."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from penstock.common.configuration import Configuration
from penstock.protocol.values.log_entries import Fence
from penstock.storage.bucket import BucketStore
from penstock.storage.bucket_clients import clients_of
from penstock.storage.bucket_requests import PAUSE_S
from penstock.storage.location import remote_location
from penstock.storage.log import append, encode_entry
from penstock.storage.opening import open_store, probe
from penstock.storage.store import BrowsableStore, ObjectExists, ObjectMissing, StoreError, StoreRefused
from penstock.storage.store_settings import StoreSettings
from tests.buckets.faulty_proxy import PASSED, Fault, FaultyProxy
from tests.buckets.servers import BUCKET, new_folder
from tools.object_stores import SECRET_KEY, Server

PART = 5 * 1024**2
APPLIED = Fault(executed=True)


@pytest.fixture
def server(moto: Server) -> Server:
    """Return moto: all faults here are answers of S3."""
    return moto


def behind(proxy: FaultyProxy, server: Server, **options: str) -> BrowsableStore:
    given = {"s3_upload_min_part_size": "5 mb", "penstock_checkpoint__storage_retry__timeout": "5 s", **options}
    return new_folder(server, s3_endpoint=proxy.url, **given)


def test_a_put_that_was_executed_and_answered_with_an_error_is_ours(proxy: FaultyProxy, server: Server) -> None:
    store = behind(proxy, server)
    proxy.fail_once("PUT", "/log/", APPLIED, times=2)
    entry = Fence(0, "inc", 0, "host", 1)
    assert append(store, entry) == entry
    assert store.get("log/" + "0" * 20) == encode_entry(entry)
    proxy.fail_once("PUT", "/shared/", APPLIED)
    store.put("shared/a", [b"state"])
    assert store.get("shared/a") == b"state"


def test_a_put_that_may_have_been_executed_does_not_hide_another_creator(proxy: FaultyProxy, server: Server) -> None:
    store = behind(proxy, server)
    store.create("log/0", b"theirs")
    proxy.fail_once("PUT", "/log/", Fault())
    with pytest.raises(ObjectExists, match="log/0"):
        store.create("log/0", b"ours")
    assert store.get("log/0") == b"theirs"


def test_the_same_bytes_of_another_creator_are_not_ours(proxy: FaultyProxy, server: Server) -> None:
    """Without an error before it, an object that exists was created by somebody else, whatever is in it."""
    store = behind(proxy, server)
    store.create("log/0", b"same")
    with pytest.raises(ObjectExists):
        store.create("log/0", b"same")


def test_a_conflict_with_a_concurrent_put_is_tried_again(proxy: FaultyProxy, server: Server) -> None:
    """S3 answers 409 while another conditional put of the name is under way: nobody has won yet."""
    store = behind(proxy, server)
    proxy.fail_once("PUT", "/log/", Fault(409, "ConditionalRequestConflict"), times=2)
    store.create("log/0", b"ours")
    assert store.get("log/0") == b"ours"


@pytest.mark.parametrize("status", [500, 503, 429, 408])
def test_what_may_pass_is_tried_again_after_pauses_that_grow(
    proxy: FaultyProxy, server: Server, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    place, settings = (
        remote_location(f"s3://{BUCKET}/pauses-{status}"),
        StoreSettings.of(Configuration({**server.options, "s3.endpoint": proxy.url})),
    )
    assert place is not None
    longest: list[float] = []

    def uniform(least: float, most: float) -> float:
        longest.append(most)
        return least

    monkeypatch.setattr("penstock.storage.bucket_requests.random.uniform", uniform)
    slept: list[float] = []
    store = BucketStore(place, clients_of(place._replace(path=""), settings), settings, sleep=slept.append)
    proxy.fail_once("PUT", "/log/", Fault(status), times=5)
    store.create("log/0", b"x")
    assert longest == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6]) and len(slept) == 5
    proxy.fail_once("GET", "/log/", Fault(status), times=12)
    assert store.get("log/0") == b"x"
    assert max(longest) == PAUSE_S[1]


def test_a_store_that_stays_overloaded_is_named_with_what_it_answers(proxy: FaultyProxy, server: Server) -> None:
    store = behind(proxy, server, penstock_checkpoint__storage_retry__timeout="1 s")
    proxy.fault = lambda method, path: Fault()
    with pytest.raises(StoreError) as raised:
        store.create("log/0", b"x")
    assert not isinstance(raised.value, StoreRefused), "it may have been executed"
    for text in ("cannot write s3://", "/job/log/0", f"{proxy.url} answers 503 SlowDown", "attempts in"):
        assert text in str(raised.value)
    with pytest.raises(StoreError, match="cannot list"):
        store.list("")


def test_a_store_that_hangs_is_given_up_in_time(proxy: FaultyProxy, server: Server) -> None:
    options = {"penstock_checkpoint__storage_request__timeout": "200 ms"}
    store = behind(proxy, server, penstock_checkpoint__storage_retry__timeout="1 s", **options)
    proxy.fault = lambda method, path: Fault(hangs=True)
    with pytest.raises(StoreError, match=r"does not answer \(Timeout, .*attempts.*s3\.endpoint") as raised:
        store.create("log/0", b"x")
    assert not isinstance(raised.value, StoreRefused), "it may have been executed"


def test_a_slow_store_is_only_slow(proxy: FaultyProxy, server: Server) -> None:
    store = behind(proxy, server)
    proxy.fault = lambda method, path: Fault(status=0, delay_s=0.05)
    probe(store)
    assert store.list("") == []


def test_many_deletions_are_on_their_way_at_a_time_and_one_that_fails_holds_up_none(
    proxy: FaultyProxy, server: Server
) -> None:
    """Publications of checkpoints wait for them."""
    store = behind(proxy, server)
    for number in range(16):
        store.put(f"shared/{number}", [b"x"])
    proxy.fault = lambda method, path: Fault(403, "AccessDenied") if path.endswith("/3") else Fault(0, delay_s=0.1)
    proxy.most_at_once = 0
    with pytest.raises(StoreError, match="cannot delete .*shared/3: .* refuses access"):
        store.delete_all([f"shared/{number}" for number in range(16)])
    assert 4 <= proxy.most_at_once <= 8
    proxy.fault = lambda method, path: PASSED
    assert store.list("") == ["shared/3"]


def test_a_store_that_is_down_is_named_and_has_got_nothing(server: Server) -> None:
    with FaultyProxy(server.port) as gone:
        store = behind(gone, server, penstock_checkpoint__storage_retry__timeout="500 ms")
    with pytest.raises(StoreRefused, match=r"does not answer \(Connection refused.*check that it runs, and s3"):
        store.create("log/0", b"x")


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fault(403, "AccessDenied"), r"refuses access to s3://penstock-tests \(403 AccessDenied: .*s3\.access-key"),
        (Fault(401, "Unauthorized"), "refuses access"),
        (Fault(400, "ExpiredToken"), "the credentials for s3://penstock-tests have expired.*renew s3.access-key"),
        (
            Fault(507, "XMinioStorageFull"),
            r"is full, or the quota of s3://penstock-tests is used up \(507 XMinio.*room",
        ),
        (Fault(507, ""), "is full, or the quota"),
        (Fault(403, "QuotaExceeded"), "is full, or the quota"),
        (Fault(400, "InvalidRequest"), "answers 400 InvalidRequest: the proxy says so"),
    ],
)
def test_what_does_not_pass_is_said_at_once(proxy: FaultyProxy, server: Server, fault: Fault, says: str) -> None:
    store = behind(proxy, server)
    proxy.fault = lambda method, path: fault
    with pytest.raises(StoreRefused, match=says):
        store.create("log/0", b"x")
    assert len(proxy.requests) == 1
    with pytest.raises(StoreError, match=says):
        store.list("")
    with pytest.raises(StoreError, match=says):
        store.put("shared/large", [bytes(PART + 1)])
    proxy.fault = lambda method, path: PASSED
    assert store.list("") == []


def test_a_missing_bucket_is_not_a_missing_object(server: Server) -> None:
    store = open_store("s3://no-such-bucket/jobs", StoreSettings.of(Configuration(server.options)))
    for ask in (lambda: store.create("log/0", b"x"), lambda: store.get("log/0"), lambda: store.list("")):
        with pytest.raises(StoreError, match="bucket s3://no-such-bucket does not exist at http.*create it") as raised:
            ask()
        assert not isinstance(raised.value, ObjectMissing)


def test_an_upload_survives_errors_of_its_parts_and_of_its_end(proxy: FaultyProxy, server: Server) -> None:
    store = behind(proxy, server)
    data = bytes(range(256)) * (3 * PART // 256 + 1)
    proxy.fail_once("PUT", "partNumber", Fault(), times=2)
    store.put("shared/a", [data])
    proxy.fail_once("POST", "uploadId", APPLIED)
    store.put("shared/b", [data])
    assert store.get("shared/a") == store.get("shared/b") == data


def test_an_upload_that_fails_leaves_nothing(proxy: FaultyProxy, server: Server) -> None:
    store = behind(proxy, server, penstock_checkpoint__storage_retry__timeout="500 ms")
    proxy.fault = lambda method, path: Fault(500, "InternalError") if "partNumber" in path else PASSED
    with pytest.raises(StoreError, match="answers 500 InternalError"):
        store.put("shared/a", [bytes(3 * PART)])
    assert store.list("") == []
    assert any(method == "DELETE" and "uploadId" in path for method, path in proxy.requests)


def test_secrets_are_in_no_text(proxy: FaultyProxy, server: Server) -> None:
    proxy.fault = lambda method, path: Fault(403, "SignatureDoesNotMatch")
    with pytest.raises(StoreError) as raised:
        behind(proxy, server).get("log/0")
    settings = StoreSettings.of(Configuration(server.options))
    for text in (str(raised.value), repr(raised.value), repr(settings), repr(Configuration(server.options))):
        assert SECRET_KEY not in text
    assert "***" in repr(Configuration(server.options))


def test_a_client_library_that_is_not_installed_is_named_with_the_way_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(StoreError, match=r"s3://another-bucket: needs obstore.*pip install 'penstock\[s3\]'"):
        open_store("s3://another-bucket/x")


def test_half_of_a_key_is_refused() -> None:
    with pytest.raises(StoreError, match=r"s3\.access-key and s3\.secret-key belong together"):
        open_store("s3://a-bucket/x", StoreSettings.of(Configuration({"s3.access-key": "a"})))


# ---- credentials that expire while they are used ----------------------------------------------------------------


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of credentials of a user whose environment has none."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    path = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    return path


def give(profile: Path, key: str) -> None:
    profile.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = secret-{key}\n", "utf-8")
    time.sleep(0.2)  # obstore asks no provider twice in a tenth of a second


def test_credentials_that_were_renewed_are_read_at_once(proxy: FaultyProxy, profile: Path) -> None:
    """Renews credentials for every store of the bucket, for every request, and for an upload in parts: each reads the
    file again."""
    give(profile, "first")
    settings = StoreSettings.of(Configuration({"s3.endpoint": proxy.url, "s3.upload.min.part.size": "5 mb"}))
    stores = [open_store(f"s3://{BUCKET}/renewed-{n}", settings) for n in range(2)]
    for store in stores:
        store.create("log/0", b"x")
    proxy.expired_keys.add("first")
    give(profile, "second")
    for store in stores:
        assert store.get("log/0") == b"x"
        assert store.size("log/0") == 1 and store.list("log") == ["log/0"]
        store.put("shared/a", [bytes(2 * PART)])
        store.delete("shared/a")
    give(profile, "third")
    proxy.expired_keys.add("second")
    stores[1].create("log/1", b"y")
    stores[1].put("shared/b", [bytes(2 * PART)])


def test_credentials_that_nobody_renews_are_named(proxy: FaultyProxy, profile: Path) -> None:
    give(profile, "stale")
    store = open_store(f"s3://{BUCKET}/stale", StoreSettings.of(Configuration({"s3.endpoint": proxy.url})))
    proxy.expired_keys.add("stale")
    for ask in (lambda: store.create("log/0", b"x"), lambda: store.list(""), lambda: store.size("log/0")):
        with pytest.raises(StoreError, match="the credentials for s3://penstock-tests have expired.*a profile in"):
            ask()
    assert len(proxy.requests) <= 8


def await_parts(proxy: FaultyProxy, count: int) -> None:
    """Wait until so many parts are answered: they are sent in the background."""
    deadline = time.monotonic() + 20
    while proxy.at_once or sum("partNumber" in path for _, path in proxy.requests) < count:
        assert time.monotonic() < deadline, proxy.requests
        time.sleep(0.01)


def test_credentials_that_expire_while_an_upload_is_open(proxy: FaultyProxy, server: Server, profile: Path) -> None:
    """Leaves an upload that could not be aborted, so in a bucket of its own."""
    server.make_bucket("expiring")
    give(profile, "before")
    options = {"s3.endpoint": proxy.url, "s3.upload.min.part.size": "5 mb"}
    store = open_store("s3://expiring/open", StoreSettings.of(Configuration(options)))
    pieces = [bytes([n]) * (2 * PART) for n in range(3)]
    writer = store.writer("shared/a")
    for number, (old, new) in enumerate([("before", "after"), ("after", "last")]):
        writer.write(pieces[number : number + 1])
        await_parts(proxy, 2 * (number + 1))
        proxy.expired_keys.add(old)
        give(profile, new)
    writer.write(pieces[2:])
    writer.finish()
    assert store.get("shared/a") == b"".join(pieces)

    writer = store.writer("shared/b")
    writer.write(pieces[:1])
    proxy.expired_keys.add("last")
    with pytest.raises(StoreError, match="the credentials for s3://expiring have expired.*a profile in"):
        for _ in range(5):  # parts are sent in the background
            writer.write(pieces[:1])
        writer.finish()
    writer.abort()
    give(profile, "renewed")
    assert store.list("shared") == ["shared/a"]

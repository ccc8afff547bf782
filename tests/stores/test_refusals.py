"""Asks servers of buckets for what they refuse, and checks what users read: the bucket, the option, and no
secret. What is ours after an answer that was lost.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

import pytest

from penstock.common.configuration import Configuration
from penstock.storage.opening import open_store
from penstock.storage.store import BrowsableStore, ObjectExists, ObjectMissing, StoreError, StoreRefused
from penstock.storage.store_settings import StoreSettings
from tests.buckets.faulty_proxy import PASSED, Fault, FaultyProxy
from tests.buckets.servers import BUCKET
from tests.stores.conftest import started
from tools.object_stores import AZURE_ACCOUNT, AZURE_KEY, Server

PLANTED = "cGxhbnRlZC1zZWNyZXQtdGhhdC1ub2JvZHktbWF5LXNlZQ=="
NAMED = {"s3": r"s3\.access-key", "az": r"fs\.azure\.account\.key", "gs": r"gs\.service-account"}


def wrong(kind: str, folder: Path) -> dict[str, str]:
    """Return options with a secret that the server of this kind refuses."""
    if kind == "gs":
        account = {"client_email": "me@example.com", "private_key": PLANTED, "private_key_id": PLANTED}
        (folder / "account.json").write_text(json.dumps({**account, "disable_oauth": True}), encoding="utf-8")
        return {"penstock.checkpoint-storage.gs.service-account": str(folder / "account.json")}
    if kind == "az":
        return {f"fs.azure.account.key.{AZURE_ACCOUNT}.dfs.core.windows.net": PLANTED}
    return {"s3.access-key": "penstock", "s3.secret-key": PLANTED}


@pytest.fixture
def azurite(tmp_path: Path) -> Iterator[Server]:
    running = started("azurite", tmp_path / "azurite")
    yield running
    running.stop()


@pytest.fixture(scope="module", params=["seaweedfs", "azurite", "gcs"])
def any_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = started(request.param, tmp_path_factory.mktemp(request.param))
    yield running
    running.stop()


def requests(store: BrowsableStore) -> list[Callable[[], object]]:
    return [
        lambda: store.create("log/0", b"x"),
        lambda: store.get("log/0"),
        lambda: store.size("log/0"),
        lambda: store.list(""),
        lambda: store.folders(""),
        lambda: store.put("shared/a", [bytes(9 * 1024**2)]),
        lambda: store.delete("log/0"),
    ]


def opened(server: Server, bucket: str, **options: str) -> BrowsableStore:
    given = {**server.options, "penstock.checkpoint-storage.retry-timeout": "1 s", **options}
    return open_store(f"{server.uri(bucket)}/jobs", StoreSettings.of(Configuration(given)), create_root=True)


def test_a_missing_bucket_is_named_and_is_no_missing_object(any_server: Server) -> None:
    store = opened(any_server, "no-such-bucket")
    for ask in requests(store):
        with pytest.raises(StoreError, match="bucket (s3|az|gs)://no-such-bucket does not exist.*create it") as raised:
            ask()
        assert not isinstance(raised.value, ObjectMissing)


def test_a_wrong_secret_is_refused_by_the_option_that_holds_it_and_never_shown(
    any_server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kind = any_server.uri("").partition(":")[0]
    store = opened(any_server, BUCKET, **wrong(kind, tmp_path))
    told = []
    for ask in requests(store):
        with pytest.raises(StoreError, match=f"refuses access to {kind}://{BUCKET} .*{NAMED[kind]}") as raised:
            ask()
        told += [str(raised.value), repr(raised.value), repr(raised.value.__cause__), repr(raised.value.__context__)]
    told += [repr(store), repr(vars(store)), *capfd.readouterr()]
    assert not [text for text in told if PLANTED in text]


def signature(expires: datetime) -> str:
    """Return a shared access signature of Azure's for everything in the account."""
    end, version = expires.strftime("%Y-%m-%dT%H:%M:%SZ"), "2023-11-03"
    signed = "\n".join((AZURE_ACCOUNT, "rwdlac", "b", "sco", "", end, "", "", version, "", ""))
    digest = hmac.new(base64.b64decode(AZURE_KEY), signed.encode(), hashlib.sha256).digest()
    sig = base64.b64encode(digest).decode()
    return urlencode({"sv": version, "ss": "b", "srt": "sco", "sp": "rwdlac", "se": end, "sig": sig})


def test_a_signature_of_azure_that_has_expired_is_named_and_never_shown(azurite: Server) -> None:
    """Azurite refuses an expired one without the reason, which Azure gives as a detail."""

    def signed(minutes: int, **options: str) -> BrowsableStore:
        given = {key: text for key, text in azurite.options.items() if not key.startswith("fs.azure.account.key")}
        token = signature(datetime.now(UTC) + timedelta(minutes=minutes))
        given |= {"penstock.checkpoint-storage.azure.sas-token": token, **options}
        return open_store(f"{azurite.uri(BUCKET)}/signed", StoreSettings.of(Configuration(given)), create_root=True)

    name = f"log/{uuid.uuid4().hex}"
    signed(10).create(name, b"x")
    assert signed(10).get(name) == b"x"
    with pytest.raises(StoreRefused, match=r"refuses access to az://.*azure\.sas-token") as raised:
        signed(-10).create("log/0", b"x")
    assert "sig=" not in str(raised.value)
    with FaultyProxy(azurite.port) as proxy:
        endpoint = azurite.options["penstock.checkpoint-storage.azure.endpoint"].replace(azurite.url, proxy.url)
        store = signed(10, **{"penstock.checkpoint-storage.azure.endpoint": endpoint})
        for code, detail in (
            ("AuthenticationFailed", "Signature not valid in the specified time frame: Start [a] - Expiry [b]"),
            ("InvalidAuthenticationInfo", "Lifetime validation failed. The token is expired."),
        ):
            proxy.fault = lambda method, path: Fault(403, code, detail=detail)
            asked = len(proxy.requests)
            for ask in requests(store):
                with pytest.raises(
                    StoreError, match=f"the credentials for az://{BUCKET} have expired.*sas-token"
                ) as told:
                    ask()
                assert "sig=" not in str(told.value)
            assert len(proxy.requests) < asked + 2 * len(requests(store)), "no request is repeated"


def behind(proxy: FaultyProxy, server: Server, retry_timeout: str = "60 s") -> BrowsableStore:
    options = {key: text.replace(server.url, proxy.url) for key, text in server.options.items()}
    options |= {"penstock.checkpoint-storage.retry-timeout": retry_timeout, "s3.upload.min.part.size": "5 mb"}
    uri = f"{server.uri(BUCKET)}/{uuid.uuid4().hex}"
    return open_store(uri, StoreSettings.of(Configuration(options)), create_root=True)


def test_what_was_executed_and_answered_with_an_error_is_ours(any_server: Server) -> None:
    with FaultyProxy(any_server.port) as proxy:
        store = behind(proxy, any_server)
        proxy.fail_once("PUT", "/log/", Fault(executed=True), times=2)
        store.create("log/0", b"ours")
        assert store.get("log/0") == b"ours" and store.list("log") == ["log/0"]
        proxy.fail_once("PUT", "/log/", Fault())
        with pytest.raises(ObjectExists, match="log/0"):
            store.create("log/0", b"another's")
        assert store.get("log/0") == b"ours"
        data = bytes(range(256)) * (12 * 1024**2 // 256)
        proxy.fail_once("PUT", "/shared/", Fault(), times=2)
        store.put("shared/a", [data])
        assert store.get("shared/a") == data


def test_an_overloaded_server_is_named_with_its_answer(any_server: Server) -> None:
    with FaultyProxy(any_server.port) as proxy:
        store = behind(proxy, any_server, "5 s")
        proxy.fault = lambda method, path: Fault()
        for ask in (lambda: store.create("log/0", b"x"), lambda: store.get("log/0"), lambda: store.list("")):
            with pytest.raises(StoreError, match=f"{BUCKET}/.* answers 503.*attempts in"):
                ask()
        proxy.fault = lambda method, path: PASSED
        store.create("log/0", b"x")

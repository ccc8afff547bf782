"""Tests HDFS behind Kerberos, with a real key server, and with all that is sent encrypted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hdfs_native
import pytest

from penstock.common.configuration import Configuration
from penstock.storage.opening import open_store
from penstock.storage.store import ObjectStore, StoreError
from penstock.storage.store_settings import StoreSettings
from tests.buckets.servers import BUCKET, new_folder
from tests.stores.conftest import started
from tests.unit.storage.conformance import BrowsableConformance
from tools.hdfs_servers import PRINCIPAL, SecureHdfs

pytestmark = pytest.mark.timeout(400)
KEYTAB, NAME = "security.kerberos.login.keytab", "security.kerberos.login.principal"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureHdfs]:
    running = started("hdfs-kerberos", tmp_path_factory.mktemp("hdfs"))
    assert isinstance(running, SecureHdfs)
    with pytest.MonkeyPatch.context() as patch:
        for key, text in running.environment.items():
            patch.setenv(key, text)
        patch.setenv("KRB5CCNAME", f"FILE:{tmp_path_factory.mktemp('tickets')}/none")
        yield running
    running.stop()


class TestSecureHdfs(BrowsableConformance):
    @pytest.fixture
    def store(self, secure: SecureHdfs) -> ObjectStore:
        return new_folder(secure)


def settings(**options: str) -> StoreSettings:
    return StoreSettings.of(Configuration({"penstock.checkpoint-storage.retry-timeout": "1 s", **options}))


def test_a_ticket_of_the_user_is_used(secure: SecureHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses a ticket that was got as `kinit` gets one."""
    cache = f"FILE:{tmp_path}/tickets"
    keytab = str(secure.kerberos.keytab)
    client = hdfs_native.Client(
        secure.uri(""), kerberos_principal=PRINCIPAL, kerberos_keytab=keytab, kerberos_cache=cache
    )
    client.get_file_info("/")
    with pytest.raises(StoreError, match=f"wants Kerberos.*{KEYTAB}.*kinit.*KRB5_CONFIG"):
        open_store(secure.uri(BUCKET), settings(), create_root=True)
    monkeypatch.setenv("KRB5CCNAME", cache)
    store = open_store(secure.uri(f"{BUCKET}/by-ticket"), settings(), create_root=True)
    store.create("log/0", b"x")
    assert store.get("log/0") == b"x"


def test_a_keytab_that_cannot_be_used_is_named(secure: SecureHdfs, tmp_path: Path) -> None:
    keytab = str(secure.kerberos.keytab)
    for options, says in (
        ({KEYTAB: keytab}, "belong together"),
        ({NAME: PRINCIPAL}, "belong together"),
        ({KEYTAB: str(tmp_path / "none"), NAME: PRINCIPAL}, r"keytab is .*/none, which cannot be read here"),
        ({KEYTAB: keytab, NAME: "bob@EXAMPLE.COM"}, "wants Kerberos, and it fails"),
    ):
        with pytest.raises(StoreError, match=says):
            open_store(secure.uri(BUCKET), settings(**options), create_root=True)


def test_a_client_without_hadoops_settings_is_told_in_time(secure: SecureHdfs, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks without Kerberos, and the name node's refusal never reaches the caller of the library."""
    monkeypatch.delenv("HADOOP_CONF_DIR")
    with pytest.raises(StoreError, match=r"(no answer within 1 s|disconnected).*wants Kerberos, that HADOOP_CONF"):
        open_store(
            secure.uri(BUCKET), settings(**{"penstock.checkpoint-storage.request-timeout": "1 s"}), create_root=True
        )


def test_a_folder_of_another_user_is_named(secure: SecureHdfs) -> None:
    with pytest.raises(StoreError, match="refuses access.*user=alice"):
        open_store(secure.uri("of-root"), settings(**secure.options), create_root=True)

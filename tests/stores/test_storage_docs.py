"""Tests the commands of docs/storage.md, on servers whose addresses are in config.yaml, and what they print."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.documentation import Script, read_page
from tests.spark.run_programs import LIMIT_S
from tests.spark.test_docs import DOCS, commands, run_script
from tests.stores.conftest import started
from tools.object_stores import AZURE_ACCOUNT, Server

__all__ = ["commands"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(6 * LIMIT_S)]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Server]]:
    running = [started(name, tmp_path / name) for name in ("seaweedfs", "azurite", "gcs")]
    for server in running:
        server.make_bucket("my-container" if server.name == "Azurite" else "my-bucket")
    yield running
    for server in running:
        server.stop()


def test_the_commands_of_the_page_run_and_print_what_it_says(
    servers: list[Server], tmp_path: Path, commands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {key: text for server in servers for key, text in server.options.items()}
    lines = [f"{key}: {text}\n" for key, text in options.items() if not key.endswith("azure.account")]
    (tmp_path / "config.yaml").write_text("".join(lines), encoding="utf-8")
    monkeypatch.setenv("PENSTOCK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("PENSTOCK_REGISTRY_DIR", str(tmp_path / ".registry"))
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", AZURE_ACCOUNT)
    ran = 0
    for step in read_page((DOCS / "storage.md").read_text(encoding="utf-8")).steps:
        if isinstance(step, Script):
            printed = run_script(step, tmp_path, commands)
            difference = None if step.output is None else step.output.difference(printed)
            assert difference is None, f"{step.text}: {difference}"
            ran += 1
        else:
            (tmp_path / step.name).write_text(step.text, encoding="utf-8")
    assert ran == 6

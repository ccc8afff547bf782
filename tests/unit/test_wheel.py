"""Tests the wheel that users install: our package with its types, and nothing else; and the sources, with their
documents.
"""

from __future__ import annotations

import posixpath
import re
import subprocess
import sys
import tarfile
from email.message import Message
from email.parser import BytesParser
from pathlib import Path
from zipfile import ZipFile

import pytest

import penstock

ROOT = Path(__file__).resolve().parents[2]


def built(target: str, folder: Path) -> Path:
    """Build the wheel or the sdist; returns its file."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (file,) = folder.iterdir()
    return file


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    file = built("wheel", tmp_path_factory.mktemp("wheel"))
    assert file.name == f"penstock-{penstock.__version__}-py3-none-any.whl"
    return ZipFile(file)


@pytest.fixture(scope="module")
def metadata(wheel: ZipFile) -> Message:
    return BytesParser().parsebytes(wheel.read(f"penstock-{penstock.__version__}.dist-info/METADATA"))


def test_it_holds_the_package_and_the_marker_of_its_types_and_nothing_else(wheel: ZipFile) -> None:
    package = ROOT / "penstock"
    ours = {f"penstock/{path.relative_to(package).as_posix()}" for path in package.rglob("*.py")}
    ours.add("pyspark_penstock/__init__.py")  # by which Spark finds the data source
    data = {"penstock/py.typed", "penstock/spark/log4j2.properties"}
    # The dashboard, whole: nothing of it comes from the network.
    data |= {f"penstock/rest/ui/{name}" for name in ("index.html", "style.css", "icon.svg")}
    scripts = ("app", "actions", "checkpoints", "driver", "failures", "graph", "overview", "settings", "text")
    data |= {f"penstock/rest/ui/{name}.js" for name in scripts}
    data |= {
        f"penstock/rest/ui/vendor/{name}" for name in ("dagre.js", "preact-htm.js", "dagre.LICENSE", "htm.LICENSE")
    }
    about = f"penstock-{penstock.__version__}.dist-info/"
    assert {name for name in wheel.namelist() if not name.startswith(about)} == ours | data
    assert f"{about}licenses/LICENSE" in wheel.namelist()


def test_it_holds_nothing_that_proves_or_measures_the_package(wheel: ZipFile) -> None:
    folders = {name.partition("/")[0] for name in wheel.namelist()}
    assert folders == {"penstock", "pyspark_penstock", f"penstock-{penstock.__version__}.dist-info"}
    inside = {folder for name in wheel.namelist() for folder in name.split("/")[:-1]}
    assert not inside & {"simulation", "tests", "benchmarks", "examples", "tools"}


def test_its_metadata_says_what_it_is_and_what_it_needs(metadata: Message) -> None:
    told = {key: metadata[key] for key in ("Name", "Version", "License-Expression", "Requires-Python")}
    assert told == {
        "Name": "penstock",
        "Version": penstock.__version__,
        "License-Expression": "Apache-2.0",
        "Requires-Python": ">=3.11",
    }
    assert "stream processor" in metadata["Summary"]
    classifiers = metadata.get_all("Classifier", [])
    assert "Typing :: Typed" in classifiers and not [c for c in classifiers if c.startswith("License ::")]
    needed = [re.split(r"[<>=!;\s]", line)[0] for line in metadata.get_all("Requires-Dist", []) if "extra" not in line]
    assert {"pyspark", "pyarrow"} <= set(needed) and not {"pytest", "mypy", "hatchling"} & set(needed)


def test_its_description_is_the_readme(metadata: Message) -> None:
    assert metadata["Description-Content-Type"] == "text/markdown"
    payload = metadata.get_payload(decode=True)
    assert isinstance(payload, bytes)
    assert payload.decode().strip() == (ROOT / "README.md").read_text(encoding="utf-8").strip()


def test_the_sources_hold_what_their_documents_link_to(tmp_path: Path) -> None:
    top = f"penstock-{penstock.__version__}"
    with tarfile.open(built("sdist", tmp_path)) as archive:
        files = set(archive.getnames())
        pages = [name for name in files if name == f"{top}/README.md" or re.fullmatch(rf"{top}/docs/[\w-]+\.md", name)]
        assert len(pages) > 10
        missing = []
        for page in pages:
            reader = archive.extractfile(page)
            assert reader is not None
            for link in re.findall(r"\]\(([^)#]+)[^)]*\)", reader.read().decode("utf-8")):
                path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
                if "://" not in link and not any(name == path or name.startswith(f"{path}/") for name in files):
                    missing.append(f"{page}: {link}")
    assert not missing
    assert not [name for name in files if "__pycache__" in name or name.startswith((f"{top}/build", f"{top}/.venv"))]

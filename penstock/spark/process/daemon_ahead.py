"""Starts the daemon of the slots at the same time as Java, so that its imports cost a program no time.

Spark starts PySpark's daemon when the first task comes, seconds after Java was started, and then the daemon imports
for a second. On the driver's own machine we start a process that imports meanwhile, and waits at a socket. The daemon
that Spark starts finds it there, hands it its files and its environment, and only waits for its end: the process that
was started ahead is the daemon from then on. Where anything of this fails, the daemon of Spark imports itself, as
anywhere else.
"""

from __future__ import annotations

import array
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from penstock.spark.process.process_ends import ends_folder

SOCKET_VARIABLE = "PENSTOCK_DAEMON_AHEAD"
_OF_SPARK = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "YES"}
"""Variables that Spark sets for its daemon, and that count when Python starts or a library is imported."""
_AT_IMPORT = (
    "PYTHONHASHSEED",
    "PYTHONOPTIMIZE",
    "PYTHONMALLOC",
    "OMP_",
    "OPENBLAS_",
    "MKL_",
    "ARROW_",
    "MALLOC_",
    "LD_",
)
_TAKEN, _REFUSED = b"+", b"-"
_ANSWER_S = 20.0
_FILES = 3
_MESSAGE_BYTES_MAX = 1 << 20


def start_ahead(source_tree: str | None) -> dict[str, str]:
    """Start the process; return the variables by which the daemon of Spark finds it.

    Args:
        source_tree: The folder of our package, where a new Python process would not find it.
    """
    path = Path(tempfile.mkdtemp(prefix="ahead-", dir=ends_folder())) / "socket"
    environment = os.environ | _OF_SPARK
    if source_tree is not None:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (source_tree, environment.get("PYTHONPATH"))))
    try:
        started = subprocess.Popen(
            [sys.executable, "-m", "penstock.spark.process.slot_daemon", str(path)],
            stdin=subprocess.PIPE,  # ends with this process, however that ends
            stdout=subprocess.DEVNULL,
            env=environment,
            process_group=0,
        )
    except OSError:
        return {}
    threading.Thread(target=started.wait, name="penstock-daemon-ahead", daemon=True).start()
    _started.append(started)
    return {SOCKET_VARIABLE: str(path)}


_started: list[subprocess.Popen[bytes]] = []
"""Keeps the pipes open whose end says that this process has ended."""


# ---- in the daemon that Spark has started -----------------------------------------------------------------------


def hand_over() -> None:
    """Let the process that was started ahead be the daemon, and wait for its end; return if there is none."""
    path = os.environ.get(SOCKET_VARIABLE)
    if path is None:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, suppress(OSError):
        connection.settimeout(_ANSWER_S)
        connection.connect(path)
        own = {"environment": dict(os.environ), "path": sys.path, "arguments": sys.argv, "folder": os.getcwd()}
        text = json.dumps(own).encode()
        files = array.array("i", range(_FILES))
        connection.sendmsg([len(text).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
        connection.sendall(text)
        if connection.recv(1) == _TAKEN:
            connection.settimeout(None)
            with suppress(OSError):
                connection.recv(1)  # nothing comes: this is its end
            os._exit(0)


# ---- in the process that was started ahead ----------------------------------------------------------------------


def wait_at(listening: socket.socket) -> bool:
    """Take the place of the daemon that Spark starts. Return False if the driver ends first, or if that daemon has
    another environment.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    waited_for: list[int] = [listening.fileno(), 0]
    ready, _, _ = select.select(waited_for, [], [])
    if listening.fileno() not in ready:
        return False
    connection, _ = listening.accept()
    listening.close()
    connection.settimeout(_ANSWER_S)
    head, files, _, _ = socket.recv_fds(connection, 4, _FILES)
    own = json.loads(_received(connection, int.from_bytes(head, "big")))
    if _differs(own["environment"]):
        connection.sendall(_REFUSED)
        return False
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(own["environment"])
    os.chdir(own["folder"])
    sys.path[:], sys.argv[:] = own["path"], own["arguments"]
    connection.sendall(_TAKEN)
    # Workers keep it open no longer than the daemon does.
    os.register_at_fork(after_in_child=connection.close)
    return True


def listen_at(path: str) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(path)
    listening.listen(1)
    return listening


def _received(connection: socket.socket, length: int) -> bytes:
    if length > _MESSAGE_BYTES_MAX:
        raise ValueError(f"an environment of {length} bytes")
    text = b""
    while len(text) < length:
        more = connection.recv(length - len(text))
        if not more:
            raise ConnectionError("the daemon of Spark has ended")
        text += more
    return text


def _differs(environment: dict[str, str]) -> bool:
    """Return whether a variable that has counted in this process already has another value there."""
    names = {name for name in (*environment, *os.environ) if name.startswith(_AT_IMPORT)}
    return any(environment.get(name) != os.environ.get(name) for name in names)

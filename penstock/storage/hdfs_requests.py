"""Sends requests to HDFS until they are answered, each with a time limit, and says what the answers mean."""

from __future__ import annotations

import random
import time
from typing import Callable, TypeVar

from penstock.common.options import ObjectStoreOptions
from penstock.storage.hdfs_answers import HdfsAnswer, answer_of
from penstock.storage.limited_calls import LimitedCalls
from penstock.storage.location import RemoteLocation
from penstock.storage.store import ObjectExists, StoreAway, StoreError, StoreRefused
from penstock.storage.store_settings import StoreSettings

T = TypeVar("T")

PAUSE_S = (0.05, 5.0)
"""The longest pause before the first repetition, and before any."""
FOLDERS_MADE_MAX = 100
KERBEROS = (
    f"{ObjectStoreOptions.KERBEROS_KEYTAB.key} and {ObjectStoreOptions.KERBEROS_PRINCIPAL.key}, or a ticket (kinit), "
    "on the driver and on the executors, where HADOOP_CONF_DIR and KRB5_CONFIG must be set, too"
)
LIBRARY_ERRORS = (RuntimeError, OSError)


class NotWritten(StoreRefused):
    """Signals that an object has not got its name, and that another attempt to write all of it may succeed."""

    def __init__(self, message: str, answer: HdfsAnswer) -> None:
        super().__init__(message)
        self.answer = answer


class HdfsRequests:
    """Sends requests about files below `location`."""

    def __init__(self, location: RemoteLocation, settings: StoreSettings) -> None:
        self._location = location
        self._retry_s = settings.get(ObjectStoreOptions.RETRY_TIMEOUT).seconds
        self._calls = LimitedCalls(settings.get(ObjectStoreOptions.REQUEST_TIMEOUT).seconds)

    def uri(self, path: str) -> str:
        return f"{self._location.uri}/{path}" if path else self._location.uri

    def once(self, request: Callable[[], T]) -> T:
        """Send a request once. Raises what the library raises, and TimeoutError."""
        return self._calls.call(request)

    def call(self, verb: str, path: str, request: Callable[[], T]) -> T:
        """Send a request that may be repeated. Raises FileNotFoundError, and `StoreError` for all else."""
        pauses = self.pauses(verb, path)
        while True:
            try:
                return self.once(request)
            except FileNotFoundError:
                raise
            except LIBRARY_ERRORS as error:
                answer = answer_of(error)
                if not answer.is_transient:
                    raise StoreError(self.explained(verb, path, answer)) from None
                pauses.wait(answer, StoreAway)

    def step(self, path: str, request: Callable[[], T]) -> T:
        """Send a request that writes a file without its name yet, and cannot be repeated by itself. Raises
        `NotWritten` and `StoreRefused`.
        """
        try:
            return self.once(request)
        except LIBRARY_ERRORS as error:
            answer = answer_of(error)
            message = self.explained("write", path, answer)
            raise NotWritten(message, answer) if answer.is_transient else StoreRefused(message) from None

    def rename(
        self, path: str, rename: Callable[[], None], make_folder: Callable[[], None], is_ours: Callable[[], bool]
    ) -> None:
        """Give a file its name. `is_ours`: asked if it has lost its old name; an attempt whose answer was lost may have
        done that, and the library repeats requests by itself. Raises `ObjectExists`, FileNotFoundError if there is no
        such file, `StoreRefused` if it certainly has not got the name, and `StoreError`.
        """
        pauses = self.pauses("write", path)
        is_unsure, folders_made = False, 0
        while folders_made < FOLDERS_MADE_MAX:
            try:
                self.once(rename)
                return
            except FileExistsError:
                raise ObjectExists(f"{self.uri(path)} exists already") from None
            except FileNotFoundError as error:
                if str(error).startswith("rename source"):
                    if is_ours():
                        return
                    raise
                # The folder is missing: `delete` of another thread has removed it, or it is the first in it.
                make_folder()
                folders_made += 1
            except LIBRARY_ERRORS as error:
                answer = answer_of(error)
                is_unsure = is_unsure or not answer.is_answer
                failure = StoreAway if is_unsure else StoreRefused
                if not answer.is_transient:
                    raise failure(self.explained("write", path, answer)) from None
                pauses.wait(answer, failure)
        raise StoreError(f"cannot write {self.uri(path)}: its folder is removed each time that it is made")

    def pauses(self, verb: str, path: str) -> Pauses:
        return Pauses(self._retry_s, lambda answer, tried: self.explained(verb, path, answer, tried))

    def explained(self, verb: str, path: str, answer: HdfsAnswer, tried: str = "") -> str:
        where = self._location.root
        if answer.is_unauthenticated:
            why = f"{where} wants Kerberos, and it fails ({answer}): give {KERBEROS}"
        elif answer.is_forbidden:
            why = (
                f"{where} refuses access ({answer}): let the user read and write {self._location.uri} (hdfs dfs "
                "-chown, -chmod); it is HADOOP_USER_NAME, or who runs the process, or with Kerberos the ticket's"
            )
        elif answer.is_full:
            why = f"the quota of the directory is used up ({answer}): raise it (hdfs dfsadmin), or delete what is there"
        elif answer.is_safe_mode:
            why = (
                f"the name node is in safe mode ({answer}{tried}): it leaves it when its data nodes have reported, "
                "or by hdfs dfsadmin -safemode leave"
            )
        elif answer.is_without_data_node:
            why = f"no data node takes the file ({answer}{tried}): check that they run and that their disks have room"
        else:
            why = f"{where} answers: {answer}{tried}"
        if answer.is_silence:
            why += "; check that it runs, and if it wants Kerberos, that HADOOP_CONF_DIR says so"
        return f"cannot {verb} {self.uri(path)}: {why}"


class Pauses:
    """Passes the time between attempts, until they have taken `retry_s` together."""

    def __init__(self, retry_s: float, explained: Callable[[HdfsAnswer, str], str]) -> None:
        self._retry_s = retry_s
        self._explained = explained
        self._began = time.monotonic()
        self._attempts = 0

    def wait(self, answer: HdfsAnswer, failure: type[StoreError]) -> None:
        """Wait before another attempt. Raises `failure` if it has been tried for long enough."""
        self._attempts += 1
        passed_s = time.monotonic() - self._began
        pause_s = random.uniform(0, min(PAUSE_S[1], PAUSE_S[0] * 2 ** min(self._attempts, 20)))
        if passed_s + pause_s > self._retry_s:
            tried = f", {self._attempts} attempts in {passed_s:.0f} s" if self._attempts > 1 else ""
            raise failure(self._explained(answer, tried)) from None
        time.sleep(pause_s)

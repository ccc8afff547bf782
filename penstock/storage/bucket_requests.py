"""Sends requests to a bucket until they are answered, and says what the answers mean.

A request is repeated, after pauses that grow and have jitter, while its failure may pass. A put that was executed
and whose answer was lost meets its own object when it is repeated: then what is there is compared with what was
written. Without this: a driver takes its own log entry for another driver's, and stops.
"""

from __future__ import annotations

import random
import time
from typing import Callable, TypeVar

from penstock.common.options import ObjectStoreOptions
from penstock.storage.bucket_answers import Answer, answer_of
from penstock.storage.bucket_clients import Clients, import_obstore
from penstock.storage.location import RemoteLocation
from penstock.storage.store import ObjectExists, ObjectMissing, StoreAway, StoreError, StoreRefused, UnnameableKey
from penstock.storage.store_settings import StoreSettings

T = TypeVar("T")

PAUSE_S = (0.05, 5.0)
"""The longest pause before the first repetition, and before any."""


class BucketRequests:
    """Sends requests about objects below `location`."""

    def __init__(
        self, location: RemoteLocation, clients: Clients, settings: StoreSettings, sleep: Callable[[float], None]
    ) -> None:
        self.clients = clients
        self._location = location
        self._obstore = import_obstore(location.uri, location.kind)
        self._retry_s = settings.get(ObjectStoreOptions.RETRY_TIMEOUT).seconds
        self._sleep = sleep

    def uri(self, path: str) -> str:
        return f"{self._location.uri}/{path}" if path else self._location.uri

    def call(
        self,
        verb: str,
        path: str,
        request: Callable[[], T],
        out_of_range: Callable[[], T] | None = None,
        is_ours: Callable[[], bool] | None = None,
        ask_why: Callable[[], None] | None = None,
    ) -> T:
        """Send a request until it is answered. `is_ours`: asked if it finds its object there after an attempt of which
        nothing is known. `out_of_range`: the result if there is nothing at that range. `ask_why`: called where the
        answer has no body, and another attempt would get the same; may raise.
        """
        exceptions = self._obstore.exceptions
        began = time.monotonic()
        attempts, is_unsure = 0, False
        while True:
            attempts += 1
            try:
                return request()
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
                answer = answer_of(error)
                if not answer.is_conflict:
                    if is_unsure and is_ours is not None and is_ours():
                        return None  # type: ignore[return-value]
                    raise ObjectExists(f"{self.uri(path)} exists already") from None
            except FileNotFoundError as error:
                answer = answer_of(error)
                if ask_why is not None:
                    ask_why()
                if not answer.no_bucket:
                    raise ObjectMissing(f"{self.uri(path)} does not exist") from None
            except (exceptions.BaseError, OSError) as error:
                answer = answer_of(error)
                if answer.is_out_of_range and out_of_range is not None:
                    return out_of_range()
            if ask_why is not None and not answer.is_transient:
                ask_why()
            is_unsure = is_unsure or (answer.is_transient and not answer.is_unsent)
            passed_s = time.monotonic() - began
            pause_s = random.uniform(0, min(PAUSE_S[1], PAUSE_S[0] * 2 ** min(attempts, 20)))
            if not answer.is_transient or passed_s + pause_s > self._retry_s:
                tried = f", {attempts} attempts in {passed_s:.0f} s" if attempts > 1 else ""
                failure = self.failure(verb, path, answer, tried)
                refused = is_ours is not None and not is_unsure
                raise StoreRefused(str(failure)) if refused else failure from None
            self._sleep(pause_s)

    def failure(self, verb: str, path: str, answer: Answer, tried: str) -> StoreError:
        clients, bucket = self.clients, self._location.root
        if answer.no_bucket:
            why = f"bucket {bucket} does not exist at {clients.service}: create it, or name another one"
        elif answer.no_credentials:
            why = f"no credentials were found for {bucket} (at last the machine was asked): give {clients.credentials}"
        elif answer.is_expired:
            why = f"the credentials for {bucket} have expired ({answer}{tried}): renew {clients.credentials}"
        elif answer.is_full:
            why = (
                f"{clients.service} is full, or the quota of {bucket} is used up ({answer}{tried}): make room "
                "there, or retain fewer checkpoints"
            )
        elif answer.is_forbidden:
            why = (
                f"{clients.service} refuses access to {bucket} ({answer}{tried}): reading, writing, listing and "
                f"deleting objects there must be allowed; the credentials are those of {clients.credentials}"
            )
        elif answer.unnameable:
            why = (
                f"{bucket} has an object with the key {answer.unnameable!r}, a part of which is empty or dotted, and "
                "cannot be listed: rename or delete that object, or name a folder without it"
            )
        elif answer.status is None:
            why = f"{clients.service} does not answer ({answer}{tried}): check that it runs, and {clients.endpoint_key}"
        else:
            why = f"{clients.service} answers {answer}{tried}"
        kind = UnnameableKey if answer.unnameable else StoreAway if answer.is_transient else StoreError
        return kind(f"cannot {verb} {self.uri(path)}: {why}")

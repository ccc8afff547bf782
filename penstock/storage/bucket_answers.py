"""Reads an object store's answers out of obstore's errors, whose texts are for programmers.

Those texts also hold the request's URL, in which Azure has its signature: nothing of a URL is passed on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_STATUS = re.compile(r"status code: (\d{3})")
_CODES = (re.compile(r"<Code>([^<]*)</Code>"), re.compile(r'"reason":\s*"([^"]*)"'))
_MESSAGES = (re.compile(r"<Message>([^<]*)</Message>"), re.compile(r'"message":\s*"([^"]*)"'))
_CAUSES = re.compile(r'message: "([^"]*)"|(operation timed out)|kind: (Connect|Timeout|Request|Interrupted)\b')
_URL = re.compile(r"https?://\S+")
_DEBUG = "\n\nDebug source:"

_NO_BUCKET = (
    "NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist",
    "The specified container does not exist",
)  # fmt: skip
_EXPIRED = ("ExpiredToken", "TokenRefreshRequired", "RequestExpired", "ExpiredAuthenticationToken")
# Azure has one code for all that it does not accept, and says in a detail that a signature or token has expired.
_EXPIRED_DETAILS = ("not valid in the specified time frame", "token is expired")
# MinIO answers them, and Ceph the last one; other services a status.
_FULL = ("XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "InsufficientStorage", "QuotaExceeded")
_INSUFFICIENT_STORAGE = 507
_CONFLICTS = ("ConditionalRequestConflict", "OperationAborted", "ContainerBeingDeleted")
# Where machines ask for the credentials of their role. These hosts are never the store.
_CREDENTIAL_HOSTS = ("169.254.169.254", "169.254.170.2", "metadata.google.internal", "/metadata/identity/", "//sts.")
_UNNAMEABLE = re.compile(r'object with invalid path: (?:Error parsing )?Path "(.*?)"(?: contained|: )', re.S)
_MESSAGE_CHARACTERS_MAX = 300


@dataclass(frozen=True)
class Answer:
    """Holds a store's answer. `status` None: nothing. `is_unsent`: the request cannot have reached it. `unnameable`:
    the key of an object that it has listed and the client refuses, because a part of the key is empty or dotted.
    """

    status: int | None
    code: str
    message: str
    no_bucket: bool = False
    no_credentials: bool = False
    is_expired: bool = False
    is_unsent: bool = False
    is_conflict: bool = False
    unnameable: str = ""

    @property
    def is_forbidden(self) -> bool:
        return self.status in (401, 403)

    @property
    def is_full(self) -> bool:
        return self.status == _INSUFFICIENT_STORAGE or self.code in _FULL

    @property
    def is_out_of_range(self) -> bool:
        return self.status == 416

    @property
    def is_transient(self) -> bool:
        """Return whether the same request may succeed a moment later."""
        if self.no_bucket or self.no_credentials or self.is_expired or self.is_full or self.unnameable:
            return False
        return self.status is None or self.status in (408, 425, 429) or self.status >= 500 or self.is_conflict

    def __str__(self) -> str:
        status = " ".join(str(part) for part in (self.status, self.code) if part)
        return ": ".join(part for part in (status, self.message) if part)


def answer_of(error: BaseException) -> Answer:
    """Return the store's answer, from an error of obstore's."""
    text = str(error)
    first, _, debug = text.partition(_DEBUG)
    status = _STATUS.search(first)
    code, message = _first(_CODES, first), _first(_MESSAGES, first)
    is_unsent = False
    if status is None:
        causes = ["".join(found) for found in _CAUSES.findall(debug)]
        is_unsent = "Connect" in causes
        message = ", ".join(
            dict.fromkeys(c for c in reversed(causes) if c not in ("Request", "Connect", "Interrupted"))
        )
        message = message or _URL.sub("…", first.rpartition(" - ")[2])
    return Answer(
        int(status[1]) if status else None,
        code,
        " ".join(_URL.sub("…", message).split())[:_MESSAGE_CHARACTERS_MAX],
        no_bucket=any(mark in first for mark in _NO_BUCKET),
        no_credentials=any(host in first for host in _CREDENTIAL_HOSTS),
        is_expired=code in _EXPIRED or any(mark in first for mark in _EXPIRED_DETAILS),
        is_unsent=is_unsent,
        is_conflict=code in _CONFLICTS,
        unnameable=_first((_UNNAMEABLE,), first),
    )


def _first(patterns: tuple[re.Pattern[str], ...], text: str) -> str:
    found = (match[1] for pattern in patterns if (match := pattern.search(text)))
    return next(found, "")

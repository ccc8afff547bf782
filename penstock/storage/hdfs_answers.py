"""Reads HDFS's answers out of hdfs-native's errors, which show an answer as Rust's debug text."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ANSWER = re.compile(r'(\w+)\((?:GssMajorCodes \{.*?\}, \d+, )?"((?:[^"\\]|\\.)*)"(?:, "((?:[^"\\]|\\.)*)")?')
_ROUTINE = re.compile(r'routine_error: "(\w+)"')
_MESSAGE_CHARACTERS_MAX = 300

# Answers of a name node that has just started, is not the active one, or has heard of too few data nodes yet.
_TRANSIENT = (
    "SafeModeException", "RetriableException", "StandbyException", "NotReplicatedYetException",
    "NoMatchingRuleException", "ServerTooBusyException",
)  # fmt: skip
_NO_DATA_NODE = "could only be written to 0 of"
_TRANSIENT_KINDS = ("DataTransferError", "BlocksNotFound", "OperationFailed")
_SECURITY_KINDS = ("GSSAPIError", "SASLError", "NoSASLMechanism")
_FOREIGN_AUTHENTICATION = ("SIMPLE authentication is not enabled", "authentication is not enabled")


@dataclass(frozen=True)
class HdfsAnswer:
    """Holds why a request has failed. `kind`: the library's name of it. `exception`: Java's class, without its package.
    `is_answer`: the name node has answered, so it has not executed the request.
    """

    kind: str
    exception: str
    message: str
    is_answer: bool
    is_transient: bool

    @property
    def is_safe_mode(self) -> bool:
        return self.exception == "SafeModeException" or "safe mode" in self.message

    @property
    def is_silence(self) -> bool:
        return self.kind in ("TimeoutError", "IOError")

    @property
    def is_full(self) -> bool:
        return self.exception in ("DSQuotaExceededException", "NSQuotaExceededException", "QuotaByStorageTypeException")

    @property
    def is_without_data_node(self) -> bool:
        return _NO_DATA_NODE in self.message

    @property
    def is_unauthenticated(self) -> bool:
        return self.kind in _SECURITY_KINDS or any(text in self.message for text in _FOREIGN_AUTHENTICATION)

    @property
    def is_forbidden(self) -> bool:
        return self.exception in ("AccessControlException", "AuthorizationException")

    def __str__(self) -> str:
        return ": ".join(text for text in (self.exception, self.message) if text)


def answer_of(error: Exception) -> HdfsAnswer:
    """Return HDFS's answer, from an error of hdfs-native's."""
    text = str(error)
    if isinstance(error, OSError):
        kind = "TimeoutError" if isinstance(error, TimeoutError) else "IOError"
        return HdfsAnswer(kind, "", _first_line(text), is_answer=False, is_transient=True)
    match = _ANSWER.match(text)
    if match is None:
        return HdfsAnswer(text.partition("(")[0], "", _first_line(text), is_answer=False, is_transient=False)
    kind, first, second = match[1], match[2], match[3]
    if kind in ("RPCError", "FatalRPCError"):
        exception, message = first.rpartition(".")[2], _first_line(second or "")
    else:
        routine = _ROUTINE.search(text)
        exception, message = (routine[1] if routine else ""), _first_line(first)
    is_transient = exception in _TRANSIENT or kind in _TRANSIENT_KINDS or _NO_DATA_NODE in message
    return HdfsAnswer(kind, exception, message, is_answer=kind == "RPCError", is_transient=is_transient)


def _first_line(text: str) -> str:
    """Return a message without Java's stack."""
    plain = text.replace("\\n", "\n").replace("\\t", " ").replace('\\"', '"').replace("\\'", "'").strip()
    return plain.partition("\n")[0].strip()[:_MESSAGE_CHARACTERS_MAX]

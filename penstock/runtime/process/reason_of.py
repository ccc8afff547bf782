"""Tells the JobMaster's reason for an error that ended a subtask."""

from __future__ import annotations

from penstock.common.failures import OperatorFailure, summary
from penstock.datastream.connectors.base import PermanentError
from penstock.protocol.values.reasons import SubtaskFailureReason
from penstock.state.backend import StateSchemaError
from penstock.storage.damage import DAMAGE


def reason_of(error: BaseException) -> SubtaskFailureReason:
    """Return what a restart can do about the error."""
    if isinstance(error, DAMAGE):
        return SubtaskFailureReason.DAMAGE
    cause = error.error if isinstance(error, OperatorFailure) else error
    is_permanent = isinstance(cause, PermanentError | StateSchemaError)
    return SubtaskFailureReason.PERMANENT if is_permanent else SubtaskFailureReason.FUNCTION


def text_of(error: BaseException) -> str:
    """Return what to tell the user; of damage that we found, the type says nothing more."""
    if isinstance(error, (OperatorFailure, *DAMAGE)):
        return str(error)
    return summary(error)

"""Tells the JobMaster's reason for an error that ended a subtask."""

from __future__ import annotations

from penstock.common.program.failures import OperatorFailure, summary
from penstock.common.program.program_classes import MissingClass
from penstock.connectors.base import PermanentError
from penstock.protocol.values.keys import UnsupportedKey
from penstock.protocol.values.reasons import SubtaskFailureReason
from penstock.state.backend import StateSchemaError
from penstock.storage.damage import DAMAGE
from penstock.storage.segments import DamagedRange


def reason_of(error: BaseException) -> SubtaskFailureReason:
    """Return the failure reason of the error, which says whether a restart can help."""
    # State that is loaded lazily is read inside a function, whose failure then has the damage as its cause.
    # 3.6b: damage fails the job for good, wherever it is found.
    cause = error.error if isinstance(error, OperatorFailure) else error
    if isinstance(cause, DamagedRange):
        return SubtaskFailureReason.DAMAGED_RANGE
    if isinstance(error, DAMAGE):
        return SubtaskFailureReason.DAMAGE
    # A row whose key has no encoding comes again after each restart.
    is_permanent = isinstance(cause, PermanentError | StateSchemaError | MissingClass | UnsupportedKey)
    return SubtaskFailureReason.PERMANENT if is_permanent else SubtaskFailureReason.FUNCTION


def text_of(error: BaseException) -> str:
    """Return the error's text for the user, without its type if that says nothing more, as for damage that we found."""
    if isinstance(error, (OperatorFailure, MissingClass, *DAMAGE)):
        return str(error)
    return summary(error)

"""Checks what hdfs-native's errors are taken for. Their texts were printed by hdfs-native 0.14.7 with HDFS 3.5.0."""

from __future__ import annotations

import pytest

from penstock.storage.hdfs_answers import answer_of

PACKAGE = "org.apache.hadoop"
SAFE_MODE = (
    f'RPCError("{PACKAGE}.hdfs.server.namenode.SafeModeException", "Cannot create file/x/.tmp/1. Name node is in safe '
    'mode.\\nIt was turned on manually. Use \\"hdfs dfsadmin -safemode leave\\" to turn safe mode off.\\n\\tat org.x")'
)
NO_DATA_NODE = (
    'RPCError("java.io.IOException", "File /a could only be written to 0 of the 1 minReplication nodes. There are 0 '
    'datanode(s) running and 0 node(s) are excluded in this operation.\\n\\tat org.x")'
)
DENIED = (
    f'RPCError("{PACKAGE}.security.AccessControlException", "Permission denied: user=mallory, access=WRITE, '
    'inode=\\"/of-alice\\":alice:supergroup:drwxr-xr-x\\n\\tat org.x")'
)
QUOTA = f'RPCError("{PACKAGE}.hdfs.protocol.DSQuotaExceededException", "The DiskSpace quota of /x is exceeded")'
NO_TICKET = (
    'GSSAPIError(GssMajorCodes { raw: "0x00070000", calling_error: "none", routine_error: "GSS_S_NO_CRED", '
    'supplementary_info: "0x0000" }, 2529639053, "No credentials were supplied, or the credentials were unavailable or '
    'inaccessible: No Kerberos credentials available (default cache: FILE:/tmp/krb5cc_0)")'
)


@pytest.mark.parametrize(
    ("error", "what", "is_transient", "is_answer", "says"),
    [
        (RuntimeError(SAFE_MODE), "is_safe_mode", True, True, "safe mode."),
        (RuntimeError(NO_DATA_NODE), "is_without_data_node", True, True, "There are 0 datanode(s) running"),
        (RuntimeError(DENIED), "is_forbidden", False, True, 'inode="/of-alice":alice:supergroup:drwxr-xr-x'),
        (RuntimeError(QUOTA), "is_full", False, True, "quota of /x is exceeded"),
        (RuntimeError(NO_TICKET), "is_unauthenticated", False, False, "GSS_S_NO_CRED: No credentials were supplied"),
        (TimeoutError("no answer within 1 s"), "is_silence", True, False, "no answer within 1 s"),
    ],
)
def test_what_an_error_means(error: Exception, what: str, is_transient: bool, is_answer: bool, says: str) -> None:
    answer = answer_of(error)
    kinds = ("is_safe_mode", "is_without_data_node", "is_forbidden", "is_full", "is_unauthenticated", "is_silence")
    assert [kind for kind in kinds if getattr(answer, kind)] == [what]
    assert (answer.is_transient, answer.is_answer) == (is_transient, is_answer)
    assert says in str(answer)
    assert "\n" not in str(answer) and "org.x" not in str(answer), "Java's stack is for programmers"


def test_a_lost_connection_may_have_executed_the_request() -> None:
    answer = answer_of(OSError("RPC listener disconnected"))
    assert answer.is_transient and answer.is_silence and not answer.is_answer


def test_what_is_not_known_is_passed_on() -> None:
    answer = answer_of(RuntimeError("Already borrowed"))
    assert not answer.is_transient and not answer.is_answer and str(answer) == "Already borrowed"

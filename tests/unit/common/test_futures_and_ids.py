"""Checks futures that other threads complete, job ids, and texts that a user reads of errors and files."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading

import pytest

from penstock.common import (
    CompletableFuture,
    Encoder,
    JobExecutionError,
    JobExecutionResult,
    JobID,
    JobStatus,
    SimpleStringSchema,
)


def test_a_future_is_completed_once_from_any_thread() -> None:
    future: CompletableFuture[int] = CompletableFuture()
    heard = []
    future.add_done_callback(lambda f: heard.append(f.result()))
    thread = threading.Thread(target=future.set_result, args=(5,))
    thread.start()
    assert future.result(timeout=10) == 5
    thread.join(10)
    assert heard == [5] and future.done() and not future.cancelled()
    assert not future.set_result(6) and not future.set_exception(ValueError()) and future.result() == 5


def test_a_future_raises_what_went_wrong_and_can_be_awaited() -> None:
    failed: CompletableFuture[int] = CompletableFuture()
    failed.set_exception(KeyError("x"))
    with pytest.raises(KeyError):
        failed.result(1)
    assert isinstance(failed.exception(1), KeyError)

    async def wait() -> int:
        return await CompletableFuture.completed(3)

    assert asyncio.run(wait()) == 3
    with pytest.raises(TimeoutError):
        CompletableFuture().result(0)


def test_giving_up_awaiting_a_future_changes_nothing_of_it() -> None:
    """`asyncio.wait_for` cancelled the result of a job that ran on: its client took the job for ended."""
    future: CompletableFuture[int] = CompletableFuture()

    async def wait_in_vain() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(future, 0.01)

    asyncio.run(wait_in_vain())
    assert not future.done() and future.set_result(4) and future.result(0) == 4


def test_a_future_can_be_cancelled_unless_others_rely_on_it() -> None:
    future: CompletableFuture[int] = CompletableFuture()
    assert future.cancel() and future.cancelled() and future.done() and not future.set_result(1)
    assert future.cancel() and future.cancelled(), "a second time, too"
    with pytest.raises(concurrent.futures.CancelledError):
        future.result(0)
    shared: CompletableFuture[int] = CompletableFuture(cancellable=False)
    assert not shared.cancel() and not shared.cancelled() and not shared.done()
    completed = CompletableFuture.completed(1)
    assert not completed.cancel() and not completed.cancelled()


def test_job_ids() -> None:
    first, second = JobID.generate(), JobID.generate()
    assert first != second and JobID(str(first)) == first and len(first.to_bytes()) == 16
    with pytest.raises(ValueError, match="32 hex digits"):
        JobID("ABC")


def test_the_users_traceback_comes_first_and_the_path_last() -> None:
    error = JobExecutionError("job failed", traceback="Traceback\n  user.py\n", checkpoint_path="/c/chk-3")
    assert str(error).startswith("Traceback") and str(error).endswith("Resume from: /c/chk-3")
    assert error.status is JobStatus.FAILED and JobStatus.FAILED.is_terminal_state()
    assert not JobStatus.SUSPENDED.is_globally_terminal_state()
    result = JobExecutionResult(JobID("0" * 32), 12, {"rows": 3})
    assert result.get_net_runtime() == 12 and result.get_accumulator_result("rows") == 3


def test_strings_as_bytes() -> None:
    assert Encoder.simple_string_encoder().encode((1, "ä")) == "(1, 'ä')\n".encode()
    assert Encoder.simple_string_encoder("latin-1").encode("ä") == b"\xe4\n"
    with pytest.raises(LookupError):
        Encoder.simple_string_encoder("no-such-charset")
    schema = SimpleStringSchema()
    assert schema.deserialize(schema.serialize("ä")) == "ä"
    with pytest.raises(TypeError, match="takes strings, got 1"):
        schema.serialize(1)

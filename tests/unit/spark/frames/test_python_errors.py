"""Tests a user's traceback in Spark's errors."""

from __future__ import annotations

from penstock.spark.frames.python_errors import user_traceback

OF_SPARK_4 = """[TASK_WRITE_FAILED] Task failed while writing rows. SQLSTATE: 58030
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/pyspark/worker.py", line 3650, in main
    process()
    ~~~~~~~^^
  File "/home/ann/job.py", line 4, in parse
    return int(text)
           ^^^^^^^^^
ValueError: invalid literal

for int()
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:690)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
"""
USERS = """Traceback (most recent call last):
  File "/home/ann/job.py", line 4, in parse
    return int(text)
           ^^^^^^^^^
ValueError: invalid literal

for int()"""


def test_the_users_frames_and_the_whole_exception_are_kept() -> None:
    assert user_traceback(OF_SPARK_4) == USERS
    assert user_traceback(OF_SPARK_4.replace(" SQLSTATE: 38000\n", "\n")) == USERS


def test_an_error_of_spark_itself_has_none() -> None:
    assert user_traceback("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012") is None

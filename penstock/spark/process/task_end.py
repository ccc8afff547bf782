"""Ends a slot's Spark task as a success, and its process with it.

PySpark's worker tells Java at the end of a task whether its process may run another one. A slot's process must not: it
has our threads and settings. So the worker follows its own protocol to the end, but its last answer is always "no".
"""

from __future__ import annotations

import os
import sys
import threading
from types import CodeType, ModuleType
from typing import Any

from pyspark.serializers import SpecialLengths

_LIMIT_S = 10.0
"""The time for the worker's last words. Then the process ends in any case."""


def end_after_return() -> bool:
    """Let the process end when the task's function has returned and Java knows of it. Return False if PySpark's worker
    is not as we know it; then the function must not return.
    """
    worker = next((m for name in ("pyspark.worker", "__main__") if _is_worker(m := sys.modules.get(name))), None)
    if worker is None:
        return False
    write_int = vars(worker)["write_int"]

    def write_or_end(value: int, stream: Any) -> None:
        if value != SpecialLengths.END_OF_STREAM:
            write_int(value, stream)
            return
        # Without this: Java would hand the process, with what a slot leaves in it, to the user's next task.
        write_int(SpecialLengths.END_OF_DATA_SECTION, stream)
        stream.flush()
        os._exit(0)

    vars(worker)["write_int"] = write_or_end
    limit = threading.Timer(_LIMIT_S, os._exit, [1])
    limit.daemon = True
    limit.start()
    return True


def _is_worker(module: ModuleType | None) -> bool:
    """Return whether a function of the module writes what we wait for, by the name that is replaced."""
    if module is None or not hasattr(module, "write_int"):
        return False
    functions = [getattr(f, "__wrapped__", f) for name in ("main", "invoke_udf") if (f := getattr(module, name, None))]
    codes = [f.__code__ for f in functions if isinstance(getattr(f, "__code__", None), CodeType)]
    return any({"write_int", "END_OF_STREAM"} <= set(code.co_names) for code in codes)

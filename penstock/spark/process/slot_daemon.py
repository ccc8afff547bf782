"""Runs PySpark's daemon with what a slot needs imported before it forks.

A slot whose process died is replaced by a fork of this one, in a tenth of the time that its imports would take (0.7 s
of CPU). PySpark itself imports after the fork, because libraries may start threads that a fork does not have. Those we
import here (numpy, pyarrow, pandas) start only threads that their allocators start again after a fork. Only imports
happen here.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

from penstock.spark.process.process_ends import FOLDER_VARIABLE, record_ends


def with_compiled_pyspark(path: list[str]) -> list[str]:
    """Put installed modules before Spark's zips of PySpark and Py4J in `path`. What is imported from a zip is compiled
    each time, which takes 0.7 s; if Spark comes from the installed PySpark, the same modules are installed, compiled.
    """

    def is_twin(entry: str) -> bool:
        home = Path(entry).parents[2] if entry.endswith(".zip") and "/python/lib/" in entry else None
        return home is not None and (home / "__init__.py").exists() and str(home.parent) in path

    return [entry for entry in path if not is_twin(entry)]


def preload() -> None:
    import pyspark.worker  # noqa: F401

    import penstock.runtime.process.threads
    import penstock.spark.process.slot_main

    penstock.spark.process.slot_main.import_ahead()
    os.register_at_fork(after_in_child=_reseed)
    gc.collect()
    gc.freeze()


def _reseed() -> None:
    """Reseed numpy's generator, which would draw the same numbers in every slot; Python's own reseeds itself."""
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()


def be_the_daemon() -> None:
    """Take over from a daemon that was started ahead, or be that one; return once this process is to be the daemon."""
    # Imported here: an executor of a cluster has no use for it.
    from penstock.spark.process import daemon_ahead

    if len(sys.argv) == 2 and os.path.isabs(sys.argv[1]):
        listening = daemon_ahead.listen_at(sys.argv[1])
        preload()
        if not daemon_ahead.wait_at(listening):
            sys.exit()
        sys.path[:] = with_compiled_pyspark(sys.path)
    else:
        daemon_ahead.hand_over()
        sys.path[:] = with_compiled_pyspark(sys.path)
        preload()


if __name__ == "__main__":
    be_the_daemon()
    from pyspark.daemon import manager

    if FOLDER_VARIABLE in os.environ:
        record_ends(os.environ[FOLDER_VARIABLE])
    manager()

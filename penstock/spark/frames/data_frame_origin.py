"""Identifies the origin of a DataFrame's rows, as far as Spark reports it, so that a resumed job notices a change.

That is its query, the files that it reads, and the rows that the program itself passed to `createDataFrame`. Changes of
a Python function in the query, or of a database, cannot be noticed without computing the DataFrame.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

Origin = dict[str, Any]
"""`query`: its lines, or None where each evaluation differs. `files`: [bytes, time of change in ms] by path, or None
where only the path is known. `rows`: for each collection of the program's, the hash of each partition. Fit for JSON."""

# Matches parts of what Spark prints of a file's status: times in ms, sizes in bytes.
_FILE = re.compile(r"path=([^;]*);.*? length=(\d+);.*? modification_time=(\d+);")
_SPLITS = re.compile(r", splits=(?:Some\(\d+\)|None)")  # how many depends on the cores that Spark has
# Matches the ids that a session counts up, which follow a name: one without a name ("#5") is a value of the query.
_COUNTED_ID = re.compile(r"(?<=[^\s(,\[])#(\d+)|(?<=CTERelationDef )(\d+)|(?<=CTERelationRef )(\d+)")
_ANY_WIDTH = 2**31 - 1


def origin_of(frame: DataFrame) -> Origin:
    """Return the origin without computing the DataFrame. Raises as Spark does."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    files: dict[str, list[int] | None] = {}
    rows: list[list[int]] = []
    for leaf in _each(plan.collectLeaves()):
        kind = leaf.getClass().getSimpleName()
        if kind == "LocalRelation":
            rows.append([leaf.data().hashCode()])
        elif kind == "LogicalRDD":
            rows += _hashes_of_collection(frame, leaf.rdd())
        elif kind == "LogicalRelation":
            files |= _files(leaf.relation())
    return {"query": _query(plan), "files": files, "rows": rows}


def change(before: Origin, now: Origin) -> str | None:
    """Describe the difference, as part of a sentence; None: nothing that is known of both."""
    old, new = before["query"], now["query"]
    if old is not None and new is not None and old != new:
        was, differs = next(((a, b) for a, b in zip(old, new, strict=False) if a != b), (old[-1], new[-1]))
        return f"its query has changed: it had '{was.strip()}' where it has '{differs.strip()}' now"
    for path, status in before["files"].items():
        if path not in now["files"]:
            return f"it read {path}, and does not any more"
        if status != now["files"][path]:
            return f"{path} has changed since"
    added = [path for path in now["files"] if path not in before["files"]]
    if added:
        return f"it reads {len(added)} file(s) that it did not read then, such as {min(added)}"
    # On another number of cores the same rows are distributed differently, and their hashes cannot be compared.
    partitions = [[len(hashes) for hashes in origin["rows"]] for origin in (before, now)]
    if partitions[0] == partitions[1] and before["rows"] != now["rows"]:
        return "the rows that the program passes to createDataFrame() are others"
    return None


def _query(plan: Any) -> list[str] | None:
    """Return the lines of an analyzed plan, without what differs from session to session."""
    if not plan.deterministic():
        return None
    try:
        text: str = plan.treeString(True, False, _ANY_WIDTH, False, True)
    except Py4JError:  # PySpark 3.5 does not know the last one
        text = plan.treeString(True, False, _ANY_WIDTH, False)
    order: dict[str, int] = {}

    def by_appearance(found: re.Match[str]) -> str:
        number = found.group().removeprefix("#")
        return found.group().replace(number, str(order.setdefault(found.group(), len(order))))

    return _COUNTED_ID.sub(by_appearance, _SPLITS.sub("", text)).splitlines()


def _files(relation: Any) -> dict[str, list[int] | None]:
    """Return the files of a relation as Spark listed them for this DataFrame: in one call, for there may be many."""
    try:
        listed = relation.location().allFiles().mkString("\n")
        return {path: [int(length), int(at)] for path, length, at in _FILE.findall(listed)}
    except Py4JError:  # the relation reads no files, or those of a table that names new files for each change
        with contextlib.suppress(Py4JError):
            return dict.fromkeys(relation.location().inputFiles())
    return {}


def _hashes_of_collection(frame: DataFrame, rdd: Any) -> list[list[int]]:
    """Return hashes of the pickled rows that the driver's program holds, one per partition; none for other RDDs."""
    while rdd.dependencies().size() == 1:
        rdd = rdd.dependencies().apply(0).rdd()
    if rdd.getClass().getSimpleName() != "ParallelCollectionRDD":
        return []
    jvm: Any = frame.sparkSession._jvm
    anything = jvm.scala.reflect.ClassTag.AnyRef()
    return [[jvm.java.util.Arrays.deepHashCode(p.values().toArray(anything)) for p in rdd.partitions()]]


def _each(found: Any) -> Iterator[Any]:
    """Yield the items of a Scala sequence."""
    return (found.apply(i) for i in range(found.size()))

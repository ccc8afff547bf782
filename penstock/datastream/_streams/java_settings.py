"""Warns of Java libraries and slot sharing groups that a program sets, and names their replacements."""

from __future__ import annotations

import warnings
from pathlib import PurePath

from penstock.common.configuration import OptionWarning

_PARTS = {
    "kafka": "Kafka is pip install 'penstock[kafka]'",
    "avro": "Avro is pip install 'penstock[avro]'",
    "parquet": "Parquet is built in",
    "csv": "CSV is built in",
    "json": "JSON is built in",
    "rocksdb": "RocksDB is pip install 'penstock[rocksdb]'",
    "s3": "S3 is pip install 'penstock[s3]'",
    "azure": "Azure is pip install 'penstock[azure]'",
    "gs-fs": "Google Cloud Storage is pip install 'penstock[gs]'",
}
"""What replaces a jar whose name has this part."""
_SERVICES = ("jdbc", "elasticsearch", "opensearch", "pulsar", "kinesis", "rabbitmq", "cassandra", "pubsub")


def warn_of_jars(method: str, jars: tuple[str, ...]) -> None:
    """Warn that Java libraries have no effect, and name what replaces those that were given."""
    names = [PurePath(jar).name.lower() for jar in jars]
    replaced = [told for part, told in _PARTS.items() if any(part in name for name in names)]
    lacking = [service for service in _SERVICES if any(service in name for name in names)]
    if lacking:
        replaced.append(f"there is no connector for {', '.join(lacking)}: write a Source or a Sink, or use map()")
    told = "; ".join(replaced) or "connectors and formats are Python packages, such as 'penstock[kafka]'"
    warnings.warn(f"{method}() has no effect, as no Java library is needed: {told}", OptionWarning, stacklevel=3)


def warn_of_groups(name: str) -> None:
    """Warn that a slot sharing group changes nothing."""
    warnings.warn(
        f"slot sharing group {name!r} has no effect: every slot runs a subtask of each operator; cores and memory of "
        "slots are Spark's (spark.task.cpus, spark.executor.memory, spark.executor.memoryOverhead)",
        OptionWarning,
        stacklevel=3,
    )

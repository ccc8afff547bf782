"""Declares the measures. A title names one of them, and its row of the newest figures in HISTORY.md."""

from __future__ import annotations

from measure import FLINK, MEMORY_SECONDS, PYFLINK, SPARK, Figures, Measure, Row, exact, one_record_longer

PRESSURE = [
    Measure("pressure, aligned: duration p50", "aligned", "duration_ms_p50", " ms", sides=(FLINK,)),
    Measure(
        "pressure, unaligned: duration p50", "unaligned", "duration_ms_p50", " ms", must=0.5, aim=0.25, sides=(FLINK,)
    ),
    Measure(
        "pressure, aligned, both debloating: duration p50",
        "aligned debloated",
        "duration_ms_p50",
        " ms",
        must=0.35,
        aim=0.2,
        sides=(FLINK,),
    ),
    Measure(
        "pressure, unaligned, both debloating: persisted p50",
        "unaligned debloated",
        "persisted_bytes_p50",
        " B",
        must=0.3,
        aim=0.2,
        sides=(FLINK,),
    ),
    Measure("pressure, unaligned: duration p90", "unaligned", "duration_ms_p90", " ms", sides=(FLINK,)),
    Measure(
        "pressure, unaligned: persisted p50", "unaligned", "persisted_bytes_p50", " B", must=1, aim=0.2, sides=(FLINK,)
    ),
    Measure(
        "busy in pure Python against sleeping: duration p50",
        "unaligned busy",
        "duration_ms_p50",
        " ms",
        must=2,
        aim=1.5,
        beside="unaligned",
        beside_name="ours, asleep",
    ),
    *(
        Measure(
            f"pressure, unaligned, {record_ms} ms per record: duration p50",
            f"unaligned {record_ms} ms",
            "duration_ms_p50",
            " ms",
            bound_by=one_record_longer(record_ms),
        )
        for record_ms in (10, 100)
    ),
    Measure("objects written per checkpoint, 2 slots", "unaligned", "objects_written_max", must=4),
    Measure("pressure, unaligned: publication p50", "unaligned", "publication_ms_p50", " ms"),
]

OVERHEAD = [
    Measure("throughput with a checkpoint each second / none", "overhead", "ratio", must=0.97, aim=0.99, better="more"),
    Measure(
        "throughput with a checkpoint each second / none: half the width of the 95 % interval",
        "overhead",
        "ratio_half_width",
        must=0.01,
    ),
    Measure("rows per CPU second with a checkpoint each second / none", "overhead", "cpu_ratio", better="more"),
    Measure(
        "rows per CPU second with a checkpoint each second / none: half the width of the 95 % interval",
        "overhead",
        "cpu_ratio_half_width",
    ),
]

THROUGHPUT = [
    Measure(
        "reduce, columnar, rows/s", "reduce", "rows_per_s", must=2, aim=5, better="more", sides=(FLINK,)
    ),
    Measure(
        "reduce, columnar, rows/s, against Structured Streaming", "reduce", "rows_per_s", better="more", sides=(SPARK,)
    ),
    Measure(
        "window, columnar, rows/s", "window", "rows_per_s", must=2, aim=5, better="more", sides=(FLINK,)
    ),
    Measure(
        "window, columnar, rows/s, against Structured Streaming", "window", "rows_per_s", must=1, aim=2, better="more",
        sides=(SPARK,),
    ),
    *(
        Measure(
            f"{name}, row functions in Python, rows/s", f"{name} python", "rows_per_s", better="more", beside=name,
            beside_name="ours, columnar",
        )
        for name in ("reduce", "window")
    ),
    exact("reduce", "reduce"),
    exact("window", "window"),
]  # fmt: skip

UDF = [
    Measure("map in Python, rows/s", "map", "rows_per_s", must=5, aim=15, better="more", sides=PYFLINK),
    Measure("map and reduce in Python, rows/s", "udf", "rows_per_s", must=20, aim=100, better="more", sides=PYFLINK),
    exact("map", "map"),
    exact("udf", "map and reduce"),
]

CALLS = [
    Measure("map_batches of 5 ms per call, 400,000 rows: calls", "calls", "calls", must=200),
    Measure("map_batches of 5 ms per call, unaligned: duration p50", "calls", "duration_ms_p50", " ms", must=15),
    exact("calls", "map_batches of 5 ms per call"),
    Measure(
        "1,000 calls of 50 ms at once: rows per second / capacity per latency",
        "async calls",
        "share_of_limit",
        must=0.9,
        better="more",
    ),
    Measure("1,000 calls of 50 ms at once, unaligned: duration p50", "async calls", "duration_ms_p50", " ms", must=20),
]

NEIGHBOURS = [
    Measure(
        f"columnar reduce beside {processes} busy processes: rows per CPU second / quiet",
        "neighbours",
        f"ratio_beside_{processes}",
        must=must,
        better="more",
    )
    for processes, must in ((4, 0.9), (24, 0.7))
]

DATAFRAME = [
    Measure(
        "DataFrame → keyed sum → Parquet, 10 M rows, rows/s",
        "dataframe",
        "rows_per_s",
        must=1,
        aim=2,
        better="more",
        beside="dataframe",
        beside_field="spark_rows_per_s",
        beside_name="Structured Streaming, availableNow",
    ),
    exact("dataframe", "DataFrame, both sides"),
]

RECOVERY = [
    Measure("SIGKILL of a slot → first new row, p50", "recovery", "recovery_ms_p50", " ms", must=3000, aim=1500),
    Measure("SIGKILL of a slot → first new row, max", "recovery", "recovery_ms_max", " ms", must=3000, aim=1500),
    Measure("SIGKILL of a slot → committed, p50", "recovery", "committed_ms_p50", " ms"),
    exact("recovery", "kills of slots"),
]

CLUSTER = [
    *(
        Measure(
            f"SIGKILL of an executor, {called} → first new row, {share}",
            "cluster",
            f"recovery_ms_{share}_spares_{spares}",
            " ms",
            must=must,
            aim=aim,
        )
        for spares, called, must, aim in ((0, "nothing spare", 12_000, 8_000), (1, "a spare slot", 3_000, 1_500))
        for share in ("p50", "max")
    ),
    exact("cluster", "kills of executors"),
]

RESCALE = [
    Measure(
        "crash under backpressure, restored 2→3, 3→2, 1→4, 4→1 → first new row, max", "rescale", "restore_ms_max",
        " ms", must=10_000, aim=6_000,
    ),
    Measure("in-flight data that was restored, least", "rescale", "inflight_bytes_min", " B", must=1, better="more"),
    exact("rescale", "restored at another parallelism"),
]  # fmt: skip

LIVE_RESCALE = [
    Measure(
        "live rescale 2→3 under pressure: request → first new row at a sink, max", "live rescale", "up_ms_max", " ms",
        must=3_000, aim=1_000,
    ),
    Measure(
        "live rescale 3→2 under pressure: request → first new row at a sink, max", "live rescale", "down_ms_max", " ms",
        must=3_000, aim=1_000,
    ),
    exact("live rescale", "rescales of the running job"),
]  # fmt: skip

KILLS = [
    Measure("orders in Kafka: SIGKILLs of slots, driver and broker", "kafka kills", "kills", must=100, better="more"),
    *(Measure(f"orders in Kafka, killed: rows {what}", "kafka kills", what, must=0) for what in ("lost", "doubled")),
]  # fmt: skip

STATE = [
    Measure("columnar state, 10 M keys: resident bytes per key", "state", "rss_bytes_per_key", " B", must=64, aim=40),
    Measure("columnar state: stop for a snapshot, p99", "state", "stop_ms_p99", " ms", must=20, aim=5),
    Measure("columnar state: stop without a snapshot, p99", "state", "quiet_ms_p99", " ms"),
    Measure("columnar state: stands still for a snapshot, p99", "state", "sync_ms_p99", " ms", must=20, aim=5),
]

OPEN_STATE = [
    Measure("a checkpoint as a DataFrame: keys per second", "open state", "keys_per_s", must=2e6, better="more"),
    Measure("the same, of the key column alone", "open state", "keys_per_s_of_key_column"),
    Measure("a checkpoint as Arrow: keys per second, one thread", "open state", "keys_per_s_as_arrow"),
]

STORAGE = [
    Measure(
        "pressure, checkpoints on SeaweedFS: duration p50", "storage", "bucket_ms_p50", " ms", beside="storage",
        beside_field="local_ms_p50", beside_name="ours, local directory",
    ),
    Measure("the same: longer than in the local directory, in puts", "storage", "longer_in_puts", must=4),
    Measure("the same: objects written per checkpoint, 2 slots", "storage", "objects_written_max", must=4),
    Measure("the same: publication p50", "storage", "publication_ms_p50", " ms"),
]  # fmt: skip

KEYED_STATE = [
    Measure(
        "read-modify-write of 10 M keys of 100 bytes on RocksDB, columnar, rows/s", "keyed state", "rows_per_s", must=1,
        aim=3, better="more", sides=(FLINK,),
    ),
    Measure(
        "read-modify-write of 1 M keys on RocksDB, value state in Python, rows/s", "keyed state python", "rows_per_s",
        must=5, aim=20, better="more", sides=PYFLINK,
    ),
    exact("keyed state", "read-modify-write, columnar"),
    exact("keyed state python", "read-modify-write in Python"),
    *(
        measure
        for kept in ("in memory", "on RocksDB", "5 GB in memory", "5 GB on RocksDB")
        for measure in (
            Measure(
                f"incremental checkpoint, columns {kept}, 1 % of keys changed: written, of a full one",
                f"incremental {kept}", "written_share_p50", must=0.05, aim=0.02,
            ),
            Measure(
                f"incremental checkpoint, columns {kept}: stop, p99", f"incremental {kept}", "stop_ms_p99", " ms",
                must=20, aim=5,
            ),
            Measure(
                f"incremental checkpoint each second, columns {kept}: not in time", f"incremental {kept}", "late",
                must=0,
            ),
            Measure(
                f"throughput with an incremental checkpoint each second / none, columns {kept}", f"incremental {kept}",
                "throughput_ratio", must=0.9, aim=0.97, better="more",
            ),
        )
    ),
]  # fmt: skip

LARGE_STATE = [
    Measure("5 GB on RocksDB: SIGKILL of a slot, local recovery → first new row, max", "large state", "local_ms_max",
            " ms", must=3000, aim=1000),
    Measure("5 GB on RocksDB, a store at 200 MB/s: start of the job → first new row", "large state", "restore_ms",
            " ms", must=10_000, aim=5000),
    Measure("5 GB on RocksDB, the same store: rescale 2→3, request → first new row", "large state", "rescale_ms", " ms",
            must=60_000, aim=10_000),
    Measure("5 GB on RocksDB, the same store: rescale 3→2, request → first new row", "large state", "back_ms", " ms"),
]  # fmt: skip

LATENCY = [
    Measure(
        "latency at 10,000 rows/s, keyed state in Python, p99", "latency", "latency_ms_p99", " ms", must=50, aim=14
    ),
    Measure("latency at 10,000 rows/s, keyed state in Python, p50", "latency", "latency_ms_p50", " ms"),
]

KAFKA = [
    *(
        Measure(
            f"topic → columnar count per key and second → topic, 10 M records, beside {name}, rows/s",
            "kafka",
            "rows_per_s",
            must=must,
            aim=aim,
            better="more",
            beside="kafka",
            beside_field=f"{name.partition(' ')[0].lower()}_rows_per_s",
            beside_name=f"{name}, {how}",
        )
        for name, how, must, aim in (
            (FLINK, "exactly once", 1, 2),
            ("PyFlink", "exactly once, better mode", 5, 15),
            ("Spark", "Structured Streaming, at least once", 1, 2),
        )
    ),
    exact("kafka", "topic to topic"),
    Measure(
        "topic → Python map → topic, 10,000 records/s, at least once, p50",
        "kafka at-least-once",
        "latency_ms_p50",
        " ms",
    ),
    Measure(
        "topic → Python map → topic, 10,000 records/s, at least once, p99",
        "kafka at-least-once",
        "latency_ms_p99",
        " ms",
        must=100,
        aim=30,
    ),
    Measure(
        "the same exactly once, a checkpoint each second, p50",
        "kafka exactly-once",
        "latency_ms_p50",
        " ms",
        must=1200,
        aim=700,
    ),
    Measure(
        "the same exactly once, a checkpoint each second, p99",
        "kafka exactly-once",
        "latency_ms_p99",
        " ms",
        must=2000,
        aim=1200,
    ),
]

MESSAGES = [
    Measure(
        f"CPU of the driver per {message}, 512 slots",
        "messages",
        f"{message}_us_512",
        " µs",
        must=1.5,
        beside="messages",
        beside_field=f"{message}_us_8",
        beside_name="ours, 8 slots",
    )
    for message in ("heartbeat", "acknowledgement", "registration", "report")
]

IN_FLIGHT = [
    Measure(
        "in flight per subtask before a slow operator, 64 slots, simulated",
        "in flight",
        "in_flight_bytes_64",
        " B",
        must=3,
        aim=1.5,
        beside="in flight",
        beside_field="in_flight_bytes_2",
        beside_name="ours, 2 slots",
    ),
]

LONG_ROWS = [
    Measure("1,000 ready timers of 1 ms, unaligned: duration p50", "timers", "duration_ms_p50", " ms", must=50, aim=20),
    Measure(
        "generator of 1,000,000 rows per row, unaligned: duration p50",
        "generator",
        "duration_ms_p50",
        " ms",
        must=50,
        aim=20,
    ),
]

RESTORE_MEMORY = [
    Measure(
        "restore of 1 GB in flight: resident memory of a slot above the idle job",
        "restore memory",
        "above_idle_mb",
        " MB",
        must=256,
    ),
]

MEMORY = [
    Measure(
        f"resident memory after {MEMORY_SECONDS // 60} min / after 1 min, {process}",
        "memory",
        "",
        "×",
        must=None if process == "jvm" else 1.1,
        growth=process,
    )
    for process in ("driver", "slots", "jvm")
]

SAVEPOINTS = [
    Measure(
        "savepoint under pressure: request → complete, p50", "savepoints", "savepoint_ms_p50", " ms", must=2, aim=1.2,
        beside="savepoints", beside_field="checkpoint_ms_p50", beside_name="ours, an unaligned checkpoint",
    ),
    Measure(
        "savepoint under pressure: duration p50", "savepoints", "savepoint_duration_ms_p50", " ms", must=0.05, aim=0.01,
        sides=(FLINK,),
    ),
    Measure(
        "stop with savepoint under pressure: request → job ended, p50", "savepoints", "stop_ms_p50", " ms", must=1_000,
        aim=300,
    ),
    Measure("stop with savepoint under pressure: request → job ended, max", "savepoints", "stop_ms_max", " ms"),
]  # fmt: skip

MEASURES: list[Measure] = [
    *PRESSURE, *SAVEPOINTS, *OVERHEAD, *THROUGHPUT, *UDF, *CALLS, *NEIGHBOURS, *DATAFRAME, *RECOVERY, *CLUSTER,
    *RESCALE, *LIVE_RESCALE, *STATE, *KEYED_STATE, *LARGE_STATE, *OPEN_STATE, *STORAGE, *LATENCY, *KAFKA, *KILLS,
    *MESSAGES, *IN_FLIGHT, *LONG_ROWS, *RESTORE_MEMORY, *MEMORY,
]  # fmt: skip


def rows_of(figures: Figures) -> list[Row]:
    return [row for measure in MEASURES if (row := measure.row(figures)) is not None]

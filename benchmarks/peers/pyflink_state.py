"""Workload "read-modify-write" on PyFlink: a sum per key of 100 bytes in value state of a Python function, on RocksDB.

Arguments: process|thread, rows, keys.
"""

import json
import os
import sys
import time

os.environ["_python_worker_execution_mode"] = "process"  # workers of their own, as on a cluster, not threads of this client

from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.state import ValueStateDescriptor

mode, rows, keys = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


class Total(KeyedProcessFunction):
    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value, ctx):
        total = (self.total.value() or 0) + value[1]
        self.total.update(total)
        yield total


def run(count):
    configuration = Configuration()
    configuration.set_string("python.execution-mode", mode)
    configuration.set_string("python.state.cache-size", "100000")
    configuration.set_string("python.fn-execution.bundle.size", "10000")
    configuration.set_string("state.backend.type", "rocksdb")
    configuration.set_string("taskmanager.memory.managed.size", "512mb")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])
    numbers = env.from_source(NumberSequenceSource(0, count - 1), WatermarkStrategy.no_watermarks(), "numbers", type_info=Types.LONG())
    pairs = numbers.map(lambda i: ((f"{i * 2654435761 % keys * 0x9E3779B97F4A7C15 % 2**64:016x}" * 7)[:100], 1), output_type=pair)
    totals = pairs.key_by(lambda row: row[0], key_type=Types.STRING()).process(Total(), output_type=Types.LONG())
    totals.filter(lambda n: n < 0).print()
    start = time.monotonic()
    env.execute("keyed state")
    return time.monotonic() - start


base = run(1000)  # what a job costs that does nothing
total = run(rows)
print(json.dumps({"peer": f"pyflink-{mode}", "workload": "read-modify-write", "rows": rows, "keys": keys, "parallelism": 2,
                  "seconds": round(total, 3), "startup_seconds": round(base, 3), "rows_per_s": round(rows / max(total - base, 1e-9))}))

"""Tests a job on a real YARN cluster, in client and in cluster mode, whose application master is killed by SIGKILL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.spark.run_programs import ROOT
from tests.spark.small_jobs import committed, wait_until
from tools.kafka_broker import BrokerUnavailable
from tools.yarn_cluster import YarnCluster, application_masters

LIMIT_S = 400.0
ROWS = 12_000
KILLED_AT = 1_000

PROGRAM = """
import sys
from penstock.common import Configuration, Encoder, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy

out, checkpoints, rows = sys.argv[1:]
options = {
    "high-availability.type": "filesystem",
    "execution.checkpointing.interval": "200 ms",
    "execution.checkpointing.dir": checkpoints,
}
env = StreamExecutionEnvironment.get_execution_environment(Configuration(options))
env.set_parallelism(2)
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
source = DataGeneratorSource(lambda i: (i % 7, 1), int(rows), type_info=PAIR, rows_per_second=1000.0)
pairs = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
counts = pairs.key_by(lambda p: p[0], Types.LONG()).reduce(lambda a, b: (a[0], a[1] + b[1]))
sink = FileSink.for_row_format(out, Encoder.simple_string_encoder())
sink = sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()
counts.map(lambda p: f"{p[0]}:{p[1]}", Types.STRING()).sink_to(sink)
env.execute("counting")
"""


@pytest.fixture(scope="session")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    cluster = YarnCluster(tmp_path_factory.mktemp("yarn"))
    try:
        cluster.start()
    except BrokerUnavailable as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"NO YARN CLUSTER, SO YARN IS NOT TESTED: {error}")
    yield cluster
    cluster.stop()


def submitted(yarn: YarnCluster, mode: str, *program: str) -> list[str]:
    spark_jars = Path(pyspark.__file__).parent / "jars"
    memory = {"spark.yarn.am.memory": "512m", "spark.driver.memory": "512m", "spark.executor.memory": "512m"}
    overhead = {f"spark.{who}.memoryOverhead": "128m" for who in ("yarn.am", "driver", "executor")}
    settings = {
        **memory,
        **overhead,
        "spark.executor.instances": "2",
        "spark.ui.enabled": "false",
        "spark.yarn.jars": f"local:{spark_jars}/*",
        "spark.yarn.maxAppAttempts": "10",
        "spark.yarn.stagingDir": str(yarn.conf.parent / "staging"),
        "spark.yarn.appMasterEnv.PYTHONPATH": str(ROOT),
        "spark.yarn.appMasterEnv.PYSPARK_PYTHON": sys.executable,
        "spark.executorEnv.PYSPARK_PYTHON": sys.executable,
    }
    given = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    submit = str(Path(sys.executable).with_name("spark-submit"))
    return [submit, "--master", "yarn", "--deploy-mode", mode, *given, *program]


@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_the_result_is_exact_though_the_application_master_is_killed(
    yarn: YarnCluster, tmp_path: Path, mode: str
) -> None:
    program, out = tmp_path / "counting.py", tmp_path / "out"
    program.write_text(PROGRAM, encoding="utf-8")
    command = submitted(yarn, mode, str(program), str(out), str(tmp_path / "checkpoints"), str(ROWS))
    surroundings = {
        **os.environ, "HADOOP_CONF_DIR": str(yarn.conf), "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip
    log = tmp_path / "submit.log"
    with log.open("w") as told:
        submit = subprocess.Popen(
            command, stdout=told, stderr=told, stdin=subprocess.DEVNULL, env=surroundings, cwd=tmp_path
        )
    try:
        wait_until(
            lambda: committed(out).total() > KILLED_AT or submit.poll() is not None, "the first output", LIMIT_S / 2
        )
        (master,) = application_masters()
        os.kill(master, signal.SIGKILL)
        assert submit.wait(LIMIT_S / 2) == 0, log.read_text(encoding="utf-8")[-5000:]
    finally:
        submit.kill()
    assert committed(out) == {f"{key}:{n}": 1 for key in range(7) for n in range(1, len(range(key, ROWS, 7)) + 1)}

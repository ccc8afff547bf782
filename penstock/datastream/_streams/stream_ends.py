"""Ends a stream: in a sink, in the program, or in a Spark DataFrame."""

from __future__ import annotations

from itertools import islice
from typing import Any

from penstock.common.options import CheckpointingOptions, DeploymentOptions
from penstock.connectors.memory.collect import CollectSink
from penstock.connectors.memory.print_sink import PrintSink
from penstock.datastream._streams.execution import find_data_frames
from penstock.datastream._streams.node_settings import build_hint
from penstock.datastream._streams.stream import Stream
from penstock.datastream._streams.stream_classes import S
from penstock.datastream.data_stream_sink import DataStreamSink
from penstock.graph.logical import OperatorKind


class Ends(Stream[S]):
    """Offers sinks, and the rows of a stream in the program itself."""

    def sink_to(self, sink: Any) -> DataStreamSink:
        """Write the rows to a sink.

        Example:
            stream.sink_to(FileSink.for_row_format(path, Encoder.simple_string_encoder()).build()).name("results")

        Args:
            sink: A `penstock.datastream.connectors.Sink`.

        Returns:
            The sink's operator, to set its name, uid or parallelism.

        Raises:
            TypeError: `sink` is no sink, or a builder on which `build()` was not called.
        """
        if isinstance(sink, type) or not callable(getattr(sink, "create_writer", None)):
            raise TypeError(
                f"sink_to() takes a Sink, e.g. FileSink.for_row_format(path, encoder).build(); got {sink!r}"
                f"{build_hint(sink)}"
            )
        node = self._environment._add_node(
            OperatorKind.SINK, f"Sink: {type(sink).__name__}", sink, list(self._inputs), self._type
        )
        return DataStreamSink(self._environment, node)

    def add_sink(self, sink_func: Any) -> DataStreamSink:
        """Write the rows to a sink: PyFlink's older name of `sink_to`.

        Args:
            sink_func: A `penstock.datastream.connectors.Sink`.

        Returns:
            The sink's operator.
        """
        return self.sink_to(sink_func)

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print each row on the driver's terminal, as `identifier:subtask> row`.

        The subtask, counted from 1, is left out at parallelism 1. A restart prints some rows again.

        Args:
            sink_identifier: A text to print before each row, or None.

        Returns:
            The sink's operator.
        """
        return self.sink_to(PrintSink(sink_identifier)).name("Sink: Print to Std. Out")

    def execute_and_collect(self, job_execution_name: str | None = None, limit: int | None = None) -> Any:
        """Run the job and bring this stream's rows to the driver.

        Rows come when a checkpoint has completed, exactly once each; without checkpointing at the end of the job.

        Example:
            with stream.execute_and_collect() as rows:
                for row in rows:
                    print(row)

        Args:
            job_execution_name: The job's name.
            limit: The largest number of rows to return. None: all.

        Returns:
            An iterator over the rows, in the order in which one writer gets them. Close it, or use it in a `with`
            statement: that ends the job. With `limit`: a list.

        Raises:
            ValueError: `limit` is less than 1; or a source of the job has no end and no checkpoints are taken, so no
                row would ever come.
        """
        if limit is not None and limit <= 0:
            raise ValueError(f"limit is a whole number of at least 1, got {limit}")
        endless, interval = self._endless_source(), CheckpointingOptions.CHECKPOINTING_INTERVAL
        if endless is not None and self._environment.get_configuration().get(interval) is None:
            raise ValueError(
                f"execute_and_collect() brings rows when a checkpoint has completed, or at the end of the job, and "
                f"{endless!r} has no end: take checkpoints (env.enable_checkpointing(1000) or {interval.key}), or make "
                "the source bounded"
            )
        sink = CollectSink()
        # One writer, as in Flink: rows of several would come a writer's checkpoint at a time.
        self.sink_to(sink).name("Sink: Collect").set_parallelism(1)
        client = self._environment.execute_async(job_execution_name)
        rows = sink.results(client)
        if limit is None:
            return rows
        with rows:
            return list(islice(rows, limit))

    def to_spark(self, spark: Any = None, path: str | None = None, job_execution_name: str | None = None) -> Any:
        """Run the job to its end and return this stream's rows as a Spark DataFrame.

        The rows are written to Parquet files, exactly once.

        Args:
            spark: The session of the DataFrame. None: the active one.
            path: An empty or missing directory for the files. None: a directory below the job's, or, if the job has
                none, a temporary directory that is removed when this program ends.
            job_execution_name: The job's name.

        Returns:
            A `pyspark.sql.DataFrame`.

        Raises:
            ValueError: A source of the job has no end.
            TypeError: Spark has no type for a column.
        """
        environment, endless = self._environment, self._endless_source()
        if endless is not None:
            raise ValueError(
                f"to_spark() runs the job to its end, and {endless!r} has none: write to a sink instead (sink_to), or "
                "make the source bounded"
            )
        frames = find_data_frames(environment.get_configuration().get(DeploymentOptions.TARGET))
        sink = frames.sink(path)
        self.sink_to(sink).name("Sink: DataFrame")
        environment.execute(job_execution_name)
        return frames.read(sink, spark)

    def _endless_source(self) -> str | None:
        """Return the name of a source of the job, this stream's included, that has no end."""
        nodes = self._environment._graph_with(self._inputs).nodes
        sources = [node for node in nodes if node.kind is OperatorKind.SOURCE]
        return next((node.name for node in sources if not node.function.bounded), None)

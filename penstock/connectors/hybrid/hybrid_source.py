"""Reads several sources, one after the other: history from files, say, and then what is new from Kafka."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.common.configuration import Configuration
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.base import ReaderContext, Source, SourceReader, SplitEnumerator
from penstock.connectors.hybrid.hybrid_enumerator import HybridEnumerator
from penstock.connectors.hybrid.hybrid_reader import HybridReader
from penstock.connectors.hybrid.numbered import take_number

__all__ = ["HybridSource", "HybridSourceBuilder"]


class HybridSource(Source):
    """Reads sources one after the other. Make it with `HybridSource.builder(first_source)`.

    All rows of a source are read before the first row of the next one, by all subtasks together. Until the last source
    is read, it reports a backlog: `execution.checkpointing.interval-during-backlog` counts. It has an end if the last
    source has one.

    All sources are checked when the job starts; what a `FileSource` reads is listed then.

    Example:
        source = HybridSource.builder(FileSource.for_parquet("/data/orders")).add_source(kafka_source).build()
        env.from_source(source, WatermarkStrategy.no_watermarks(), "orders")
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        _check_bounds(sources)
        _check_side_outputs(sources)
        self._sources = tuple(sources)
        self._row_type: TypeInformation | None = None
        self._is_checked = False
        self.bounded = sources[-1].bounded
        self.has_timestamps = all(source.has_timestamps for source in sources)

    @staticmethod
    def builder(first_source: Source) -> HybridSourceBuilder:
        """Return a builder of the source.

        Args:
            first_source: The source that is read first.

        Returns:
            The builder.

        Raises:
            TypeError: `first_source` is no source, or not built yet.
        """
        return HybridSourceBuilder(first_source)

    @property
    def produced_type(self) -> TypeInformation | None:
        """Return the type of the rows, which all sources have. Raises TypeError if they have not."""
        if not self._is_checked:
            self._row_type, self._is_checked = _common_type(self._sources), True
        return self._row_type

    @property
    def rejected_tag_id(self) -> str | None:
        return next((s.rejected_tag_id for s in self._sources if s.rejected_tag_id is not None), None)

    @property
    def rejected_type(self) -> TypeInformation | None:
        return next((s.rejected_type for s in self._sources if s.rejected_tag_id is not None), None)

    def describe(self) -> dict[str, str]:
        """Return the descriptions of all sources."""
        said = {f"source {number}": _described(source) for number, source in enumerate(self._sources, 1)}
        return {"connector": "hybrid", **said}

    def configure(self, configuration: Configuration) -> None:
        for source in self._sources:
            source.configure(configuration)

    def validate(self) -> None:
        """Check all sources. Raises `SourceError`."""
        for source in self._sources:
            source.validate()

    def copy_files(self, snapshot: bytes, directory: str, progress: Callable[[], None]) -> list[str]:
        """Copy the files of the source that was read when the snapshot was taken.

        Args:
            snapshot: What the enumerator's `snapshot` returned.
            directory: The savepoint's directory.
            progress: To be called whenever some of the data has been copied.

        Returns:
            The copies: paths relative to `directory`.
        """
        number, state = take_number(snapshot)
        return [] if state is None else self._sources[number - 1].copy_files(state, directory, progress)

    def create_enumerator(self, parallelism: int, restored: bytes | None) -> SplitEnumerator:
        return HybridEnumerator(self._sources, parallelism, restored)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        # If only some sources know the times of their rows, the watermark strategy gives all rows their time.
        return HybridReader(lambda number: self._sources[number - 1].create_reader(context), not self.has_timestamps)


class HybridSourceBuilder:
    """Builds a `HybridSource`. `first_source` is read first. Raises TypeError if it is no source."""

    def __init__(self, first_source: Source) -> None:
        self._sources: list[Source] = []
        self.add_source(first_source)

    def add_source(self, source: Source) -> HybridSourceBuilder:
        """Read another source behind those before it.

        Args:
            source: The source. The rows of all sources have the same type. Only the last source may have no end.

        Raises:
            TypeError: It is no source, or not built yet.
        """
        if not isinstance(source, Source):
            hint = "; call build() on it" if callable(getattr(source, "build", None)) else ""
            raise TypeError(f"source {len(self._sources) + 1} of the HybridSource is no Source, got {source!r}{hint}")
        self._sources.append(source)
        return self

    def build(self) -> HybridSource:
        """Return the source.

        The types of sources that need the job's options, such as files in a store, are compared by `from_source`.

        Returns:
            The source.

        Raises:
            ValueError: A source before the last one has no end, or sources have side outputs of different tags.
            TypeError: The rows of two sources are of different types.
        """
        source = HybridSource(self._sources)
        _common_type([s for s in self._sources if type(s).configure is Source.configure], self._sources)
        return source


def _name(number: int, source: Source) -> str:
    return f"source {number} of the HybridSource ({type(source).__name__})"


def _described(source: Source) -> str:
    said = ", ".join(f"{key} {value}" for key, value in source.describe().items())
    return f"{type(source).__name__}{f': {said}' if said else ''}"


def _check_bounds(sources: Sequence[Source]) -> None:
    for number, source in enumerate(sources[:-1], 1):
        if not source.bounded:
            raise ValueError(
                f"{_name(number, source)} has no end, so those behind it would never be read: give it an end "
                "(KafkaSource: set_bounded(...)), or make it the last one"
            )


def _check_side_outputs(sources: Sequence[Source]) -> None:
    tags = [(n, s, s.rejected_tag_id, s.rejected_type) for n, s in enumerate(sources, 1) if s.rejected_tag_id]
    for number, source, tag, row_type in tags[1:]:
        first_number, first, first_tag, first_type = tags[0]
        if (tag, row_type) != (first_tag, first_type):
            raise ValueError(
                f"{_name(number, source)} has the side output {tag!r} ({row_type}) for rows that cannot be read, and "
                f"{_name(first_number, first)} has {first_tag!r} ({first_type}): give both the same OutputTag"
            )


def _common_type(sources: Sequence[Source], all_sources: Sequence[Source] | None = None) -> TypeInformation | None:
    """Return the type of the rows of all `sources`. They are named by their place in `all_sources`."""
    numbers = {id(source): number for number, source in enumerate(all_sources or sources, 1)}
    types = [(source, source.produced_type) for source in sources]
    for source, row_type in types[1:]:
        first, first_type = types[0]
        if row_type != first_type:
            raise TypeError(
                f"{_name(numbers[id(source)], source)} has rows of type {_shown(row_type)}, and "
                f"{_name(numbers[id(first)], first)} of type {_shown(first_type)}: a HybridSource has one type of "
                "rows; read both as the same type (the format's, the deserializer's or the source's type_info)"
            )
    return types[0][1] if types else None


def _shown(row_type: TypeInformation | None) -> str:
    return "that is not declared" if row_type is None else row_type.text

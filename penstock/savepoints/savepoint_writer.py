"""Writes savepoints: new ones, and changed copies of others (Flink: SavepointWriter)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.common.configuration import Configuration
from penstock.common.options import CheckpointingOptions, ConfigOption, ParallelismOptions, PipelineOptions
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.parallelism import default_max_parallelism
from penstock.protocol.values.metadata import FORMAT_VERSION, Metadata
from penstock.savepoints.bootstrapped import BootstrappedState, bootstrapped
from penstock.savepoints.copying import SavepointCopy, copy_source_files
from penstock.savepoints.metadata_changes import InFlightError, renamed, without_operators
from penstock.savepoints.state_table import StateTable
from penstock.savepoints.transformations import OperatorIdentifier, StateBootstrapTransformation
from penstock.state.backend import StateError
from penstock.state.reading.checkpoint import Checkpoint
from penstock.state.reading.checkpoint_location import CheckpointFiles, find_checkpoint
from penstock.state.reading.shown_keys import key_type_of
from penstock.storage.layout import METADATA_NAME
from penstock.storage.location import location
from penstock.storage.metadata_file import encode_metadata
from penstock.storage.opening import open_store
from penstock.storage.store import ObjectMissing, ObjectStore
from penstock.storage.store_settings import StoreSettings


class SavepointError(StateError):
    """Signals a savepoint that cannot be written. The message names the operator, and the way out."""


class SavepointWriter:
    """Collects changes of a savepoint, and writes the result as a new one. What it was made of stays as it is.

    Example:
        writer = SavepointWriter.from_existing_savepoint(env, "/backups/savepoint-1")
        writer.change_operator_identifier(OperatorIdentifier.for_uid("old"), OperatorIdentifier.for_uid("new"))
        writer.remove_operator(OperatorIdentifier.for_uid("gone")).write("/backups/changed")
    """

    def __init__(
        self, env: StreamExecutionEnvironment, files: CheckpointFiles | None, max_parallelism: int | None
    ) -> None:
        self._configuration = Configuration(env._configuration.to_dict())
        self._files = files
        self._max_parallelism = max_parallelism
        self._metadata = _new_metadata() if files is None else files.metadata
        self._added: dict[str, tuple[OperatorIdentifier, StateBootstrapTransformation]] = {}
        self._tables: dict[tuple[str, str], tuple[pa.Table, TypeInformation | None]] = {}

    @staticmethod
    def new_savepoint(env: StreamExecutionEnvironment, max_parallelism: int | None = None) -> SavepointWriter:
        """Begin a savepoint that holds only what `with_operator` adds.

        Args:
            env: Its options say which backend makes the state (`state.backend.type`), how many subtasks share it
                (`parallelism.default`), how it is compressed, and how stores are reached.
            max_parallelism: The number of key groups that state is split into, that of the job. Not given: what the
                environment says, else 128 or more.
        """
        return SavepointWriter(env, None, max_parallelism)

    @staticmethod
    def from_existing_savepoint(env: StreamExecutionEnvironment, path: str) -> SavepointWriter:
        """Begin with all that a savepoint or checkpoint holds.

        Args:
            env: As in `new_savepoint`.
            path: As `penstock.state.read_checkpoint` takes it.

        Raises:
            StoreError: There is none, or it cannot be read.
        """
        return SavepointWriter(env, find_checkpoint(path, StoreSettings.of(env._configuration)), None)

    # ---- changes ------------------------------------------------------------------------------------------------

    def with_configuration(self, option: ConfigOption[Any], value: Any) -> SavepointWriter:
        """Set an option for this savepoint alone, such as `CheckpointingOptions.SNAPSHOT_COMPRESSION`."""
        self._configuration.set(option, value)
        return self

    def remove_operator(self, operator: OperatorIdentifier) -> SavepointWriter:
        """Leave out an operator with all its state. Raises `SavepointError` if there is none, or rows were in flight
        to it or from it.
        """
        if self._added.pop(operator.id, None) is not None:
            return self
        self._check_known(operator)
        try:
            self._metadata = without_operators(self._metadata, frozenset({operator.id}))
        except InFlightError as error:
            raise SavepointError(f"operator '{operator}' cannot be removed: {error}") from None
        self._tables = {name: table for name, table in self._tables.items() if name[0] != operator.id}
        return self

    def change_operator_identifier(self, old: OperatorIdentifier, new: OperatorIdentifier) -> SavepointWriter:
        """Give an operator another uid: the job that starts from the savepoint finds its state under that. Raises
        `SavepointError` if there is no such operator, or there is one with the new uid.
        """
        if new.id in self._known() or new.id in self._added:
            raise SavepointError(f"the savepoint has an operator '{new}' already, so '{old}' cannot be renamed to it")
        if old.id in self._added:
            self._added[new.id] = new, self._added.pop(old.id)[1]
            return self
        self._check_known(old)
        self._metadata = renamed(self._metadata, {old.id: (new.id, new.uid)})
        self._tables = {(new.id if id == old.id else id, name): t for (id, name), t in self._tables.items()}
        return self

    def with_operator(
        self, operator: OperatorIdentifier, transformation: StateBootstrapTransformation
    ) -> SavepointWriter:
        """Add an operator whose state is made of rows, when the savepoint is written. Raises `SavepointError` if there
        is one already; remove that first.
        """
        if operator.id in self._known() or operator.id in self._added:
            raise SavepointError(f"the savepoint has an operator '{operator}' already: call remove_operator() before")
        self._added[operator.id] = operator, transformation
        return self

    def with_keyed_state(
        self, operator: OperatorIdentifier, name: str, table: pa.Table, key_type: TypeInformation | None = None
    ) -> SavepointWriter:
        """Replace all entries of one keyed state. Other states of the operator, and its timers, stay.

        Args:
            operator: An operator of the savepoint.
            name: The name of its state. How it was declared stays as it was.
            table: With the columns `key` and `value`, as `read_checkpoint(...).keyed_state(...)` returns them. Keys
                that are shown as text there (UUID, Decimal, whole numbers over 64 bits) become what they were.
            key_type: The type that the table was read with, if one was given then.

        Raises:
            SavepointError: There is no such operator or state.
        """
        self._check_known(operator)
        schemas = {s.name for t in self._metadata.subtasks for s in t.schemas if s.operator == operator.id}
        if name not in schemas:
            known = ", ".join(f"'{known}'" for known in sorted(schemas)) or "none"
            raise SavepointError(f"operator '{operator}' has no keyed state '{name}'; there are {known}")
        self._tables[operator.id, name] = table, key_type
        return self

    def _known(self) -> set[str]:
        return {id for vertex in self._metadata.vertices for id in vertex.operators}

    def _check_known(self, operator: OperatorIdentifier) -> None:
        if operator.id in self._known():
            return
        known = []
        for vertex in self._metadata.vertices:
            uids = vertex.user_uids or [""] * len(vertex.operators)
            known += [
                f"'{uid}'" if uid else f"'{name}' (id {id})"
                for id, name, uid in zip(vertex.operators, vertex.operator_names, uids)
            ]
        raise SavepointError(f"the savepoint has no operator '{operator}'; there are {', '.join(known) or 'none'}")

    # ---- writing ------------------------------------------------------------------------------------------------

    def write(self, path: str) -> str:
        """Write the savepoint, and return its directory. It is complete, or nothing of it stays.

        Args:
            path: Its directory, in any store; it must not hold a savepoint.

        Raises:
            SavepointError: There is something at the path already.
            StateError: Rows or a table do not fit what they are for.
            StoreError: Something cannot be read or written; `DamagedRange`: what is to be copied is damaged.
        """
        place = location(path)
        settings = StoreSettings.of(self._configuration)
        store = open_store(place, settings, create_root=True)
        _check_free(store, place)
        made: list[BootstrappedState] = []
        written: list[str] = []
        try:
            for operator, transformation in self._added.values():
                made.append(self._bootstrapped(operator, transformation))
            tables = {(id, name): self._table(id, name, *given) for (id, name), given in self._tables.items()}
            source = None if self._files is None else self._files.store
            codec = self._configuration.get(CheckpointingOptions.SNAPSHOT_COMPRESSION)
            copy = SavepointCopy(store, source, self._metadata, codec, written)
            metadata = copy.write(tables, made)
            if self._files is not None:
                copy_source_files(self._files.root, self._files.store, place, store, written)
            store.create(METADATA_NAME, encode_metadata(metadata))
        except BaseException:
            _discard(store, written)
            raise
        finally:
            for state in made:
                state.close()
        return place

    def _bootstrapped(
        self, operator: OperatorIdentifier, transformation: StateBootstrapTransformation
    ) -> BootstrappedState:
        parallelism = self._configuration.get(ParallelismOptions.DEFAULT_PARALLELISM)
        most = transformation.max_parallelism or self._max_parallelism or self._default_max_parallelism(parallelism)
        return bootstrapped(operator, transformation, self._configuration, min(parallelism, most), most)

    def _default_max_parallelism(self, parallelism: int) -> int:
        known = {vertex.max_parallelism for vertex in self._metadata.vertices if vertex.max_parallelism > 1}
        given = self._configuration.get(PipelineOptions.MAX_PARALLELISM)
        return given if given > 0 else max(known, default=default_max_parallelism(parallelism))

    def _table(self, id: str, name: str, table: pa.Table, key_type: TypeInformation | None) -> StateTable:
        assert self._files is not None  # a new savepoint has no operator that `with_keyed_state` knows
        checkpoint = Checkpoint(replace(self._files, metadata=self._metadata))
        operator = checkpoint.operator(id)
        schema = checkpoint.keyed_schemas(operator)[name]
        described = f"state '{name}' of operator '{operator.name}'"
        keys = checkpoint.key_form(id, name, key_type)
        is_declared = key_type_of(operator.vertex, key_type) is not None
        return StateTable(described, schema, operator.vertex.max_parallelism, table, keys, is_declared)


def _new_metadata() -> Metadata:
    job_id = uuid.uuid4().hex
    return Metadata(
        FORMAT_VERSION, job_id, "savepoint", 1, 0, 0, uuid.uuid4().hex[:8], 0, False, [], [], [], [], [], []
    )


def _check_free(store: ObjectStore, place: str) -> None:
    try:
        store.size(METADATA_NAME)
    except ObjectMissing:
        return
    raise SavepointError(f"{place} holds a checkpoint or savepoint already: give another directory")


def _discard(store: ObjectStore, written: Iterable[str]) -> None:
    for path in written:
        store.delete(path)
    store.remove_if_empty()

"""Reads a savepoint or a checkpoint by the functions and descriptors of a job (Flink: SavepointReader)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.common.typeinfo import TypeInformation
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.savepoints.contexts import ReaderContext, StateContext
from penstock.savepoints.savepoint_functions import KeyedStateReaderFunction
from penstock.state.backend import StateError
from penstock.state.codecs import write_stream
from penstock.state.heap.hash_map import HashMapStateBackend
from penstock.state.operator_state import BROADCAST, SPLIT, UNION, OperatorStateBackend
from penstock.state.reading.checkpoint import EVENT_TIMERS, PROCESSING_TIMERS, Checkpoint, OperatorOfCheckpoint
from penstock.state.reading.checkpoint_location import find_checkpoint
from penstock.state.reading.state_rows import COLUMNS_KIND, StateRows
from penstock.storage.store_settings import StoreSettings

_BYTES_AT_ONCE = 64 * 1024 * 1024
"""The most bytes of state that are in memory as Python objects at a time."""


class SavepointReader:
    """Reads the state in a savepoint or checkpoint.

    Example:
        savepoint = SavepointReader.read(env, "/backups/savepoint-1")
        totals = list(savepoint.read_keyed_state("totals", ReadTotals()))
    """

    def __init__(self, env: StreamExecutionEnvironment, checkpoint: Checkpoint) -> None:
        self._env = env
        self.checkpoint = checkpoint

    @staticmethod
    def read(env: StreamExecutionEnvironment, path: str) -> SavepointReader:
        """Open a savepoint or checkpoint.

        Args:
            env: Its options say how stores are reached.
            path: As `penstock.state.read_checkpoint` takes it.

        Raises:
            StoreError: There is none, or it cannot be read.
        """
        settings = StoreSettings.of(env._configuration)
        return SavepointReader(env, Checkpoint(find_checkpoint(path, settings)))

    def keyed_state(self, uid: str, name: str, key_type: TypeInformation | None = None) -> StateRows:
        """Return the rows of a keyed state as Arrow. See `Checkpoint.keyed_state`."""
        return self.checkpoint.keyed_state(uid, name, key_type)

    def read_keyed_state(self, uid: str, function: KeyedStateReaderFunction) -> Iterator[Any]:
        """Yield the results of a function for each key of an operator's keyed state.

        Args:
            uid: The operator's uid; its id or its name will do.
            function: Asks for states in `open()`, and reads them in `read_key()`.

        Raises:
            StateError: There is no such operator, or a state that the function asks for.
            StateSchemaError: The function declares a state otherwise than the job did.
        """
        operator = self.checkpoint.operator(uid)
        schemas = self.checkpoint.keyed_schemas(operator)
        stored_bytes = sum(self.checkpoint.runs(operator, s).length_bytes for s in schemas.values())
        groups_max = operator.vertex.max_parallelism
        parts = min(groups_max, 1 + stored_bytes // _BYTES_AT_ONCE)
        bounds = [groups_max * part // parts for part in range(parts + 1)]
        for first, end in zip(bounds, bounds[1:]):
            yield from self._read_key_groups(operator, function, range(first, end))

    def _read_key_groups(
        self, operator: OperatorOfCheckpoint, function: KeyedStateReaderFunction, key_groups: range
    ) -> Iterator[Any]:
        backend = HashMapStateBackend(operator.vertex.max_parallelism, {operator.id: operator.label})
        schemas = self.checkpoint.keyed_schemas(operator)
        for schema in schemas.values():
            if schema.kind == COLUMNS_KIND:
                raise StateError(f"operator '{operator.label}' keeps built-in aggregates: read them with keyed_state()")
            backend.restore_schema(schema)
            for batch in self.checkpoint.runs(operator, schema).batches(self.checkpoint.files.store, key_groups):
                stream = bytes(write_stream(batch.schema, [batch]))
                backend.restore(operator.id, schema.name, stream, key_groups)
        context = StateContext(
            operator.id, operator.name, self._env._configuration, operator.vertex.max_parallelism, [backend]
        )
        function.open(context)
        try:
            unknown = [name for name in context.registered if name not in schemas]
            if unknown:
                known = ", ".join(f"'{name}'" for name in schemas) or "none"
                raise StateError(f"operator '{operator.label}' has no keyed state '{unknown[0]}'; there are {known}")
            keys = dict.fromkeys(key for name in context.registered for key in backend.keys_of(operator.id, name))
            timers = ReaderContext(context, frozenset((EVENT_TIMERS, PROCESSING_TIMERS)) & schemas.keys())
            for key, key_group in keys:
                backend.set_current_key(key, key_group)
                yield from function.read_key(key, timers) or ()
        finally:
            function.close()

    # ---- operator state -----------------------------------------------------------------------------------------

    def read_list_state(self, uid: str, name: str, type_info: TypeInformation | None = None) -> list[Any]:
        """Return the elements of a list of an operator, of all subtasks. Raises as `read_keyed_state`.

        Args:
            uid: The operator's uid.
            name: The name of the list.
            type_info: The type of its elements, as declared; None: they were pickled.
        """
        return self._elements(uid, name, type_info, SPLIT)

    def read_union_state(self, uid: str, name: str, type_info: TypeInformation | None = None) -> list[Any]:
        """Return the elements of a union list of an operator. See `read_list_state`."""
        return self._elements(uid, name, type_info, UNION)

    def read_broadcast_state(
        self,
        uid: str,
        name: str,
        key_type_info: TypeInformation | None = None,
        value_type_info: TypeInformation | None = None,
    ) -> dict[Any, Any]:
        """Return the broadcast state of an operator. Raises as `read_keyed_state`.

        Args:
            uid: The operator's uid.
            name: The name of the state.
            key_type_info: The type of its keys, as declared; None: they were pickled.
            value_type_info: The type of its values.
        """
        operator = self.checkpoint.operator(uid)
        backend = self._operator_backend(operator, name, (BROADCAST,), first_only=True)
        descriptor = MapStateDescriptor(name, key_type_info, value_type_info)
        return dict(backend.broadcast_state(operator.id, descriptor).items())

    def _elements(self, uid: str, name: str, type_info: TypeInformation | None, kind: str) -> list[Any]:
        operator = self.checkpoint.operator(uid)
        backend = self._operator_backend(operator, name, (SPLIT, UNION), first_only=False)
        return list(backend.list_state(operator.id, ListStateDescriptor(name, type_info), kind))

    def _operator_backend(
        self, operator: OperatorOfCheckpoint, name: str, kinds: tuple[str, ...], *, first_only: bool
    ) -> OperatorStateBackend:
        parts = self.checkpoint.operator_parts(operator, name, kinds, first_only=first_only)
        backend = OperatorStateBackend({operator.id: operator.label})
        backend.restore(parts, parts)
        return backend

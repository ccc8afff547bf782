"""Tests the backend of operator state, and how it is dealt out at another parallelism."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Row, Types
from penstock.common.program.failures import OperatorFailure
from penstock.common.time import Time
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, StateTtlConfig
from penstock.protocol.values.metadata import OperatorPart, SubtaskSnapshot
from penstock.runtime.checkpoint.operator_state_restore import restore_operator_state
from penstock.state.backend import StateError, StateRevoked, StateSchemaError
from penstock.state.operator_state import SPLIT, UNION, OperatorStateBackend, ReadOnlyBroadcastHandle

UID = "f" * 32
LONGS = ListStateDescriptor("longs", Types.LONG())
TEXTS = ListStateDescriptor("longs", Types.STRING())
UNTYPED = ListStateDescriptor("untyped")
RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
OPEN = MapStateDescriptor("open")


def new_backend() -> OperatorStateBackend:
    return OperatorStateBackend({UID: "buffer"})


def restored(old: list[list[OperatorPart]], new: int) -> list[OperatorStateBackend]:
    snapshots = [SubtaskSnapshot(0, i, [], [], [], [], [], parts, []) for i, parts in enumerate(old)]
    backends = [new_backend() for _ in range(new)]
    for subtask, backend in enumerate(backends):
        restore_operator_state(backend, UID, snapshots, new, subtask)
    return backends


def with_lists(lists: list[list[Any]], descriptor: ListStateDescriptor, kind: str) -> list[list[OperatorPart]]:
    parts = []
    for values in lists:
        backend = new_backend()
        backend.list_state(UID, descriptor, kind).add_all(values)
        parts.append(backend.parts())
    return parts


LISTS = st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5), min_size=1, max_size=4)


@settings(deadline=None)
@given(LISTS, st.integers(1, 5), st.booleans())
def test_each_element_of_a_split_list_goes_to_one_subtask(lists: list[list[int]], new: int, typed: bool) -> None:
    descriptor = LONGS if typed else UNTYPED
    shares = [b.list_state(UID, descriptor, SPLIT).get() for b in restored(with_lists(lists, descriptor, SPLIT), new)]
    everything = [value for values in lists for value in values]
    assert sorted(value for share in shares for value in share) == sorted(everything)
    if new == len(lists):
        assert shares == lists
    else:
        assert shares == [everything[subtask::new] for subtask in range(new)], "round robin"


@settings(deadline=None)
@given(LISTS, st.integers(1, 5))
def test_every_subtask_gets_all_of_a_union_list(lists: list[list[int]], new: int) -> None:
    everything = [value for values in lists for value in values]
    for backend in restored(with_lists(lists, LONGS, UNION), new):
        assert backend.list_state(UID, LONGS, UNION).get() == everything


@settings(deadline=None)
@given(LISTS, st.lists(st.integers(1, 5), min_size=1, max_size=4), st.sampled_from([SPLIT, UNION]))
def test_a_list_that_nobody_asks_for_is_kept_over_any_number_of_restores(
    lists: list[list[int]], parallelisms: list[int], kind: str
) -> None:
    stored = with_lists(lists, LONGS, kind)
    for new in parallelisms:
        stored = [backend.parts() for backend in restored(stored, new)]
    found = [b.list_state(UID, LONGS, kind).get() for b in restored(stored, 1)]
    assert sorted(found[0]) == sorted(value for values in lists for value in values)


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=5), st.integers(-9, 9)), st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_broadcast_state_comes_back_in_every_subtask(
    entries: dict[str, int], old: int, new: int, is_asked_for_between: bool
) -> None:
    backend = new_backend()
    backend.broadcast_state(UID, RULES).put_all(entries)
    stored = [backend.parts()] * old
    backends = restored(stored, new)
    if is_asked_for_between:
        for each in backends:
            each.broadcast_state(UID, RULES)
    for each in restored([b.parts() for b in backends], old):
        assert dict(each.broadcast_state(UID, RULES).items()) == entries


def test_at_the_same_parallelism_each_subtask_has_its_own_broadcast_state() -> None:
    stored = []
    for value in range(3):
        backend = new_backend()
        backend.broadcast_state(UID, RULES).put("at", value)
        stored.append(backend.parts())
    assert [b.broadcast_state(UID, RULES)["at"] for b in restored(stored, 3)] == [0, 1, 2]
    assert [b.broadcast_state(UID, RULES)["at"] for b in restored(stored, 2)] == [0, 0]


def test_a_map_is_used_like_a_dict() -> None:
    state = new_backend().broadcast_state(UID, RULES)
    assert state.is_empty() and state.get("a") is None
    state["a"] = 1
    state.put("b", 2)
    state.put_all({"c": 3})
    assert "a" in state and state.contains("b") and state["c"] == 3
    assert (list(state), list(state.keys()), list(state.values())) == (["a", "b", "c"], ["a", "b", "c"], [1, 2, 3])
    del state["a"]
    state.remove("none")
    assert dict(state.items()) == {"b": 2, "c": 3}
    state.clear()
    assert state.is_empty()


def test_a_list_replaces_appends_and_clears() -> None:
    state = new_backend().list_state(UID, LONGS, SPLIT)
    state.add(1)
    state.add_all([2, 3])
    assert list(state) == [1, 2, 3]
    state.update([4])
    state.get().append(5)
    assert state.get() == [4]
    state.clear()
    assert state.get() == []
    with pytest.raises(StateError, match="None cannot be added"):
        state.add(None)


@pytest.mark.parametrize("change", [
    lambda s: s.put("a", 2), lambda s: s.put_all({}), lambda s: s.remove("a"), lambda s: s.clear(),
    lambda s: s.__setitem__("a", 2), lambda s: s.__delitem__("a"),
])  # fmt: skip
def test_a_read_only_view_sees_changes_and_refuses_to_make_any(change: Any) -> None:
    state = new_backend().broadcast_state(UID, RULES)
    view: Any = ReadOnlyBroadcastHandle(state, "rules", "join")
    state.put("a", 1)
    assert (view["a"], "a" in view, list(view), list(view.items()), view.is_empty()) == (
        1,
        True,
        ["a"],
        [("a", 1)],
        False,
    )
    assert (list(view.values()), list(view.keys()), view.contains("b")) == ([1], ["a"], False)
    with pytest.raises(StateError, match="'rules' of operator 'join' can only be read here.*process_broadcast_element"):
        change(view)
    assert dict(state.items()) == {"a": 1}


def test_a_value_that_was_changed_in_place_is_stored_as_it_is() -> None:
    backend = new_backend()
    state = backend.broadcast_state(UID, OPEN)
    state.put("a", [1])
    backend.parts()
    state.get("a").append(2)  # type: ignore[union-attr]
    [later] = restored([backend.parts()], 1)
    assert later.broadcast_state(UID, OPEN).get("a") == [1, 2]


def test_what_has_not_changed_is_not_encoded_again() -> None:
    backend = new_backend()
    state = backend.broadcast_state(UID, RULES)
    state.put("a", 1)
    [[first], [again]] = backend.parts()[0].items, backend.parts()[0].items
    assert first is again
    state.get("a")
    assert backend.parts()[0].items[0] is first, "a number that was read cannot have changed"
    state.put("a", 2)
    assert backend.parts()[0].items[0] is not first


@pytest.mark.parametrize("ask, says", [
    (lambda b: b.list_state(UID, LONGS, UNION), "declared as a union list .* it is a list .*get_list_state"),
    (lambda b: b.list_state(UID, TEXTS, SPLIT), r"declared as a list .* of STRING, but .* of LONG"),
    (lambda b: b.broadcast_state(UID, MapStateDescriptor("longs")), "declared as broadcast state"),
])  # fmt: skip
@pytest.mark.parametrize("is_restored", [False, True])
def test_a_state_that_is_declared_otherwise_is_refused(ask: Any, says: str, is_restored: bool) -> None:
    backend = new_backend()
    backend.list_state(UID, LONGS, SPLIT).add(1)
    if is_restored:
        [backend] = restored([backend.parts()], 1)
    where = "in the checkpoint that is being restored" if is_restored else "in the same program"
    with pytest.raises(StateSchemaError, match=f"operator state 'longs' of operator 'buffer' is {says}") as raised:
        ask(backend)
    assert where in str(raised.value)


@pytest.mark.parametrize("new", [1, 2, 3])
@pytest.mark.parametrize("kind", [SPLIT, UNION])
def test_elements_of_a_changed_type_survive(kind: str, new: int) -> None:
    old, now = (ListStateDescriptor("l", Types.TUPLE([t])) for t in (Types.INT(), Types.LONG()))
    wider = ListStateDescriptor("l", Types.TUPLE([Types.LONG(), Types.STRING()]))
    backends = [new_backend() for _ in range(2)]
    for number, backend in enumerate(backends):
        backend.list_state(UID, old, kind).add_all([(number,), (number + 10,)])
    again = restored([backend.parts() for backend in backends], new)
    found = [value for backend in again for value in backend.list_state(UID, now, kind)]
    assert sorted(found) == sorted([(0,), (1,), (10,), (11,)] * (new if kind == UNION else 1))
    assert {part.codec for backend in again for part in backend.parts()} == {"TUPLE(LONG)"}
    [last] = restored([backend.parts() for backend in again], 1)
    assert {value[1] for value in last.list_state(UID, wider, kind)} == {None}


@pytest.mark.parametrize("kind", [SPLIT, UNION])
@pytest.mark.parametrize("new", [1, 2, 3])
def test_elements_survive_of_which_only_some_subtasks_have_changed_the_type(kind: str, new: int) -> None:
    """Those who did not ask for the state stored it in the old type, and all was read in the first one's."""
    before, after = (
        ListStateDescriptor("l", Types.ROW_NAMED(names, [Types.LONG()] * len(names))) for names in (["a"], ["b", "a"])
    )
    backends = [new_backend() for _ in range(2)]
    for number, backend in enumerate(backends):
        backend.list_state(UID, before, kind).add_all([Row(a=number), Row(a=number + 10)])
    backends = restored([backend.parts() for backend in backends], 2)
    backends[1].list_state(UID, after, kind)
    mixed = [backend.parts() for backend in backends]
    assert len({part.codec for parts in mixed for part in parts}) == 2
    expected = [0, 1, 10, 11] if kind == SPLIT else sorted([0, 10, 0, 1, 10, 11])
    unasked = restored(mixed, new)
    for backends in (restored(mixed, new), restored([backend.parts() for backend in unasked], new)):
        found = [[row["a"] for row in backend.list_state(UID, after, kind)] for backend in backends]
        if kind == SPLIT:
            assert sorted(value for of_one in found for value in of_one) == expected
        else:
            assert all(sorted(of_one) == expected for of_one in found)


def test_entries_of_broadcast_state_of_a_changed_type_survive() -> None:
    backend = new_backend()
    backend.broadcast_state(UID, MapStateDescriptor("m", Types.INT(), Types.ROW_NAMED(["a"], [Types.INT()]))).put(
        1, Row(a=2)
    )
    value_type = Types.ROW_NAMED(["b", "a"], [Types.STRING(), Types.LONG()])
    again = restored([backend.parts()], 2)
    for restored_one in again:
        state = restored_one.broadcast_state(UID, MapStateDescriptor("m", Types.LONG(), value_type))
        assert state.items() == [(1, Row(b=None, a=2))]
    [refusing] = restored([backend.parts()], 1)
    with pytest.raises(StateSchemaError, match="the map's keys were INT, which cannot become STRING"):
        refusing.broadcast_state(UID, MapStateDescriptor("m", Types.STRING(), value_type))


def test_a_value_that_does_not_fit_is_named() -> None:
    backend = new_backend()
    backend.broadcast_state(UID, RULES).put("a", "text")
    with pytest.raises(OperatorFailure, match="operator state 'rules' of operator 'buffer' cannot be written"):
        backend.parts()


def test_handles_end_with_their_generation() -> None:
    backend = new_backend()
    a_list, a_map = backend.list_state(UID, LONGS, SPLIT), backend.broadcast_state(UID, RULES)
    view: Any = ReadOnlyBroadcastHandle(a_map, "rules", "join")
    backend.revoke()
    uses: list[Any] = [
        a_list.get, lambda: a_list.add(1), a_list.clear, lambda: a_list.update([]), lambda: a_map.get("a"),
        lambda: a_map.put("a", 1), lambda: "a" in a_map, a_map.is_empty, a_map.items, lambda: view["a"],
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(StateRevoked):
            use()


def test_names_are_those_that_were_asked_for() -> None:
    backend = new_backend()
    backend.list_state(UID, LONGS, SPLIT)
    backend.broadcast_state(UID, RULES)
    assert backend.names(UID, SPLIT, UNION) == {"longs"}
    assert backend.names("other", SPLIT) == set()


def test_operator_state_with_a_time_to_live_is_refused() -> None:
    config = StateTtlConfig.new_builder(Time.hours(1)).build()
    rules, longs = MapStateDescriptor("rules"), ListStateDescriptor("longs")
    for descriptor in (rules, longs):
        descriptor.enable_time_to_live(config)
    with pytest.raises(StateError, match="'rules' has a time to live, which only keyed state can have"):
        new_backend().broadcast_state(UID, rules)
    with pytest.raises(StateError, match="'longs' has a time to live"):
        new_backend().list_state(UID, longs, SPLIT)

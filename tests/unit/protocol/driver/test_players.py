"""Tests the processes that play slots: their counts and deadlines are those that a look at each of them gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.driver.slots import Players, ProcessState

TIMEOUT_MS = 50.0
PROCESSES = ["a", "b", "c", "d"]


def looked_up(players: Players) -> float | None:
    deadlines = []
    for process in PROCESSES:
        player = players.get(process)
        if player is not None:
            if player.state is not ProcessState.FREE:
                deadlines.append(player.heard_ms + TIMEOUT_MS)
            if player.leave_by_ms is not None:
                deadlines.append(player.leave_by_ms)
    return min(deadlines, default=None)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["join", "drop", "heard", "heard", "look", *ProcessState]),
            st.sampled_from(PROCESSES),
            st.integers(0, 30),
            st.booleans(),
        ),
        max_size=60,
    )
)
def test_counts_and_deadlines_are_those_of_a_look_at_each_process(
    steps: list[tuple[str | ProcessState, str, int, bool]],
) -> None:
    players, now_ms = Players(TIMEOUT_MS), 0.0
    for action, process, passes_ms, looks in steps:
        now_ms += passes_ms
        player = players.get(process)
        if action == "join":
            players.join(process, now_ms)
        elif action == "drop":
            assert players.drop(process) is player
        elif player is not None and action == "heard":
            player.heard_ms = now_ms
        elif player is not None and isinstance(action, ProcessState):
            players.move(player, action, now_ms + 20 if action is ProcessState.LEAVING else None)
        if looks:
            assert players.next_deadline_ms() == looked_up(players)
    assert players.next_deadline_ms() == looked_up(players)
    states = [found.state for process in PROCESSES if (found := players.get(process)) is not None]
    assert all(players.are_all(state) == all(s is state for s in states) for state in ProcessState)


def test_restarts_leave_nothing_behind() -> None:
    """Without this: each restart adds an entry per process, and a job that restarts for a year fills the driver."""
    players = Players(TIMEOUT_MS)
    for process in PROCESSES:
        players.join(process, 0.0)
    for restart in range(100):
        for process in PROCESSES:
            player = players[process]
            player.heard_ms = float(restart)
            players.move(player, ProcessState.DEPLOYED)
            players.move(player, ProcessState.LEAVING, restart + 20.0)
            players.move(player, ProcessState.FREE)
    assert len(players._deadlines) <= 2 * len(PROCESSES)


def test_an_own_pause_restarts_all_heartbeat_timers() -> None:
    players = Players(TIMEOUT_MS)
    for process, heard_ms in (("a", 0.0), ("b", 40.0)):
        players.join(process, heard_ms)
        players.move(players[process], ProcessState.RESTORED)
    players.excuse(75.0, 25.0)
    assert players.next_deadline_ms() == 50.0, "late, but not by so much"
    players.excuse(76.0, 25.0)
    assert players.next_deadline_ms() == 126.0

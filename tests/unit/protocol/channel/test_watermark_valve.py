"""Tests event time of a subtask: the minimum over its channels, apart from those that are idle or have ended."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.channel.watermark_valve import WATERMARK_MIN_MS, WatermarkValve
from penstock.protocol.values.elements import WATERMARK_MAX_MS, Active, EndOfData, Idle, InBandEvent, Pauses, Watermark
from penstock.protocol.values.metadata import ChannelTime

W = Watermark
EVENTS: dict[str, InBandEvent] = {"i": Idle(), "a": Active(), "e": EndOfData()}


def event(word: str) -> InBandEvent:
    return EVENTS[word] if word in EVENTS else Watermark(WATERMARK_MAX_MS if word == "max" else int(word))


@pytest.mark.parametrize(
    ("channels", "script", "passed_on"),
    [
        (1, "0:5 0:5 0:3 0:9", [5, 9]),
        (2, "0:5 1:3 1:4 1:8 0:6", [3, 4, 5, 6]),
        (3, "0:5 1:5", []),
        (2, "0:5 1:i", [5]),
        (2, "1:i 0:5", [5]),
        (2, "0:5 1:3 1:i 1:a 1:4 1:7 0:8", [3, 5, 7]),
        (2, "0:i 1:i 0:9", [9]),
        (2, "0:70 1:10 0:i 1:i", [10, 70]),
        (2, "0:70 1:10 1:i 0:i", [10, 70]),
        (2, "1:10 1:i 0:i 0:70", [10, 70]),
        (3, "0:70 1:10 2:30 0:i 2:i 1:i 1:a 1:40 1:80", [10, 70, 80]),
        (2, "0:70 1:10 0:max 0:e 1:i", [10, 70]),
        (2, "0:70 1:10 0:max 1:i 0:e 1:a 1:max", [10, 70, WATERMARK_MAX_MS]),
        (2, "0:9 1:3 0:i 1:4", [3, 4]),
        (2, "0:5 1:3 1:e 0:7", [3, 5, 7]),
        (2, "0:5 1:6 0:e 1:e", [5, 6]),
        (2, "0:max 0:e 1:4 1:max 1:e", [4, WATERMARK_MAX_MS]),
        (2, "0:5 0:e 1:7 1:e", [7]),
        (2, "0:i 0:e 1:max", [WATERMARK_MAX_MS]),
        (2, "0:i 1:5 1:max 1:e 0:a 0:7 0:max", [5, 7, WATERMARK_MAX_MS]),
    ],
    ids=[
        "one channel", "the minimum", "all must speak", "idle falls out", "idle first",
        "active again holds back but never below what was said", "said while idle",
        "all idle, the one ahead first", "all idle, the one ahead last", "idle before it has said anything",
        "all idle, and one comes back", "one ended, the other idle", "one about to end, the other idle",
        "idle with the larger one",
        "ended falls out", "all ended", "the last one passes with the last", "nothing beyond what was said",
        "idle and ended", "the last word of one says nothing about an idle one",
    ],
)  # fmt: skip
def test_what_is_passed_on(channels: int, script: str, passed_on: list[int]) -> None:
    valve = WatermarkValve(channels)
    said = []
    for word in script.split():
        channel, what = word.split(":")
        reached = valve.on_event(int(channel), event(what))
        if reached is not None:
            said.append(reached)
            assert valve.current_ms == reached
    assert said == passed_on


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("iawe"), st.integers(0, 100)), max_size=30),
    st.randoms(use_true_random=False),
)
def test_when_all_are_idle_it_does_not_matter_in_which_order_they_became_so(
    before: list[tuple[int, str, int]], random: Random
) -> None:
    reached = []
    for order in (range(4), random.sample(range(4), 4)):
        valve, ended = WatermarkValve(4), set[int]()
        for channel, what, watermark_ms in before:
            if channel in ended:
                continue
            valve.on_event(channel, W(watermark_ms) if what == "w" else EVENTS[what])
            ended |= {channel} if what == "e" else set()
        for channel in order:
            if channel not in ended:
                valve.on_event(channel, Idle())
        reached.append(valve.current_ms)
        if len(ended) < 4:
            said = [w for _, what, w in _heard(before) if what == "w"]
            assert valve.current_ms == max(said, default=WATERMARK_MIN_MS)
    assert reached[0] == reached[1]


def _heard(events: list[tuple[int, str, int]]) -> list[tuple[int, str, int]]:
    """Leave out what follows the end of a channel."""
    ended, heard = set[int](), []
    for event in events:
        if event[0] not in ended:
            heard.append(event)
            ended |= {event[0]} if event[1] == "e" else set()
    return heard


def test_it_knows_when_all_channels_have_ended() -> None:
    valve = WatermarkValve(2)
    valve.on_event(0, EndOfData())
    assert not valve.all_ended
    valve.on_event(1, EndOfData())
    assert valve.all_ended


def test_a_restored_valve_goes_on_where_it_was() -> None:
    valve = WatermarkValve(3)
    for channel, what in ((0, W(5)), (1, W(8)), (2, Idle())):
        valve.on_event(channel, what)
    again = WatermarkValve(3)
    again.restore(valve.times(), valve.current_ms)
    assert again.on_event(0, W(5)) is None
    assert again.on_event(0, W(9)) == valve.on_event(0, W(9)) == 8
    assert again.on_event(2, Active()) is None and again.on_event(2, W(1)) is None, "never backwards"
    assert again.on_event(1, W(20)) is None
    assert again.on_event(2, W(30)) == 9


def test_an_idle_channel_that_has_not_heard_of_a_pause_holds_time_back() -> None:
    valve = WatermarkValve(2)
    pause: tuple[InBandEvent, ...] = (W(5), Pauses(7, 0), Idle())
    another: tuple[InBandEvent, ...] = (Active(), Pauses(7, 1), W(20), Idle())
    for what in pause:
        for channel in (0, 1):
            valve.on_event(channel, what)
    assert valve.is_idle and valve.current_ms == 5
    for what in another:
        valve.on_event(0, what)
    assert valve.current_ms == 5 and not valve.is_idle, "rows of the other one may precede 20"
    again = WatermarkValve(2)
    again.restore(valve.times(), valve.current_ms, valve.pauses)
    for restored in (valve, again):
        assert restored.on_event(1, Active()) is None and restored.on_event(1, Pauses(7, 1)) is None
        assert restored.on_event(1, Idle()) == 20 and restored.is_idle


def test_pauses_of_a_clock_above_one_channel_concern_no_other() -> None:
    valve = WatermarkValve(2)
    for channel, clock in ((0, 7), (1, 8)):
        valve.on_event(channel, W(5 + channel))
        valve.on_event(channel, Pauses(clock, 0))
        valve.on_event(channel, Idle())
    valve.on_event(0, Active())
    valve.on_event(0, Pauses(7, 1))
    assert valve.on_event(0, W(20)) == 20, "the other clock is idle, as far as anybody knows"


def test_it_is_idle_when_every_open_channel_is() -> None:
    valve = WatermarkValve(3)
    for channel, what in ((0, W(5)), (1, Idle()), (2, EndOfData())):
        valve.on_event(channel, what)
    assert not valve.is_idle
    valve.on_event(0, Idle())
    assert valve.is_idle and valve.current_ms == 5
    valve.on_event(1, Active())
    assert not valve.is_idle
    valve.on_event(0, EndOfData())
    valve.on_event(1, EndOfData())
    assert not valve.is_idle, "who has ended says something: that nothing comes"


def test_a_layer_holds_time_back_until_it_is_read() -> None:
    valve = WatermarkValve(1)
    valve.restore([ChannelTime(9)])
    first, second = valve.add_virtual(ChannelTime(3)), valve.add_virtual(ChannelTime(4))
    assert valve.on_event(0, W(20)) == 3
    assert valve.on_virtual(first, W(7)) == 4
    assert valve.virtual_time(first) == ChannelTime(7)
    assert valve.end_virtual(first) is None
    assert valve.on_virtual(second, W(7)) == 7
    assert valve.on_virtual(second, EndOfData()) == 20, "the end of data ends that layer's time only"
    assert not valve.all_ended and not valve.is_idle
    assert valve.end_virtual(second) is None
    assert valve.times() == [ChannelTime(20)]


def test_what_was_restored_counts_before_any_event() -> None:
    valve = WatermarkValve(2)
    valve.restore([ChannelTime(9), ChannelTime(7)])
    layer = valve.add_virtual(ChannelTime(3, idle=True))
    assert valve.start() == 3
    assert valve.end_virtual(layer) == 7
    fresh = WatermarkValve(1)
    assert fresh.start() == WATERMARK_MIN_MS


def test_a_layer_holds_time_back_while_its_producer_was_idle() -> None:
    """Rows behind the end of its pause may come after what another layer of the same producer says of time."""
    valve = WatermarkValve(1)
    valve.restore([ChannelTime(3, idle=True)])
    idle, ahead = valve.add_virtual(ChannelTime(3, idle=True)), valve.add_virtual(ChannelTime(3))
    assert valve.on_virtual(ahead, W(20)) == 3 and not valve.is_idle
    assert valve.virtual_time(idle) == ChannelTime(3, idle=True), "a snapshot says what it was"
    assert valve.on_virtual(idle, Active()) is None
    assert valve.on_virtual(idle, W(12)) == 12
    assert valve.on_virtual(idle, Idle()) is None
    assert valve.end_virtual(idle) == 20
    assert valve.end_virtual(ahead) is None and valve.is_idle


def test_the_final_watermark_of_a_layer_is_not_the_subtasks() -> None:
    valve = WatermarkValve(1)
    layer = valve.add_virtual(ChannelTime(2))
    valve.on_virtual(layer, W(WATERMARK_MAX_MS))
    assert valve.on_virtual(layer, EndOfData()) is None
    assert valve.end_virtual(layer) is None
    assert valve.on_event(0, W(8)) == 8

"""Offers windows, their assigners and their triggers, as `pyflink.datastream.window` does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.common.missing_names import advising_getattr
from penstock.datastream._windows.count_assigners import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    GlobalWindows,
)
from penstock.datastream._windows.session_assigners import (
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    SessionWindowTimeGapExtractor,
)
from penstock.datastream._windows.window_assigners import (
    MergingWindowAssigner,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    T,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from penstock.datastream._windows.window_evictors import CountEvictor, Evictor, TimeEvictor, TimestampedValue
from penstock.datastream._windows.window_kinds import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
    Window,
)
from penstock.datastream._windows.window_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
    TriggerResult,
)
from penstock.datastream.functions import IN, KEY, OUT, W2, W

__all__ = [
    "CountEvictor", "Evictor", "TimeEvictor", "TimestampedValue", "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger", "CountSlidingWindowAssigner", "CountTrigger", "CountTumblingWindowAssigner",
    "CountWindow", "CountWindowSerializer", "DynamicEventTimeSessionWindows", "DynamicProcessingTimeSessionWindows",
    "EventTimeSessionWindows", "EventTimeTrigger", "GlobalWindow", "GlobalWindowSerializer", "GlobalWindows",
    "MergingWindowAssigner", "NeverTrigger", "ProcessingTimeSessionWindows", "ProcessingTimeTrigger", "PurgingTrigger",
    "SessionWindowTimeGapExtractor", "SlidingEventTimeWindows", "SlidingProcessingTimeWindows", "TimeWindow",
    "TimeWindowSerializer", "Trigger", "TriggerResult", "TumblingEventTimeWindows", "TumblingProcessingTimeWindows",
    "Window", "WindowAssigner", "IN", "KEY", "OUT", "T", "W", "W2",
]  # fmt: skip

if not TYPE_CHECKING:  # a type checker knows the names without it
    __getattr__ = advising_getattr(__name__)

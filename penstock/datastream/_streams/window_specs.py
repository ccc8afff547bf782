"""Checks the settings of windows, and makes the specs of their operators."""

from __future__ import annotations

import warnings
from typing import Any

from penstock.common.program.signatures import check_call, parameters_of
from penstock.common.typeinfo import TypeInformation
from penstock.datastream._streams.declared_inputs import AnyWindowFunction, check_merge
from penstock.datastream._streams.strategy_checks import level_of_program
from penstock.datastream._windows.count_assigners import CountSlidingWindowAssigner, CountTumblingWindowAssigner
from penstock.datastream._windows.window_forms import form_of, rule_of
from penstock.datastream.functions import AggregateFunction, ReduceFunction
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.window import (
    EventTimeTrigger,
    Evictor,
    GlobalWindows,
    MergingWindowAssigner,
    NeverTrigger,
    Trigger,
    WindowAssigner,
)
from penstock.graph.declared_functions import AnyWindowSpec, TriggeredWindowSpec, WindowSpec
from penstock.operators.windows.assigners.assigner import Assigner, MergingAssigner


def check_assigner(window_assigner: Any, method: str) -> None:
    """Check the argument of `window()`. Raises TypeError."""
    if isinstance(window_assigner, type):
        raise TypeError(
            f"{method}() was given the class {window_assigner.__name__}; make an assigner, e.g. "
            "TumblingEventTimeWindows.of(Duration.of_seconds(10))"
        )
    if not isinstance(window_assigner, WindowAssigner):
        raise TypeError(
            f"{method}() takes a window assigner, e.g. TumblingEventTimeWindows.of(size, offset); got "
            f"{window_assigner!r}"
        )
    _check_methods(window_assigner, WindowAssigner)
    if isinstance(window_assigner, MergingWindowAssigner):
        _check_methods(window_assigner, MergingWindowAssigner)


def check_trigger(trigger: Any, window_assigner: WindowAssigner[Any, Any]) -> None:
    """Check the argument of `trigger()`. Raises TypeError."""
    if isinstance(trigger, type):
        raise TypeError(f"trigger() was given the class {trigger.__name__}; make a trigger, e.g. CountTrigger.of(10)")
    if not isinstance(trigger, Trigger):
        raise TypeError(f"trigger() takes a Trigger, e.g. CountTrigger.of(10); got {trigger!r}")
    _check_methods(trigger, Trigger)
    if isinstance(window_assigner, MergingWindowAssigner) and trigger.can_merge() is not True:
        raise TypeError(
            f"trigger(): {window_assigner} merges windows, and {type(trigger).__name__} does not: a trigger for them "
            "has can_merge(), which returns True, and on_merge(window, ctx)"
        )


def check_evictor(evictor: Any) -> None:
    """Check the argument of `evictor()`. Raises TypeError."""
    if isinstance(evictor, type):
        raise TypeError(f"evictor() was given the class {evictor.__name__}; make an evictor, e.g. CountEvictor.of(10)")
    if not isinstance(evictor, Evictor):
        raise TypeError(f"evictor() takes an Evictor, e.g. CountEvictor.of(10); got {evictor!r}")
    _check_methods(evictor, Evictor)


def _check_methods(given: Any, kind: type) -> None:
    for name in kind.__dict__.get("__abstractmethods__", ()):
        check_call(f"{kind.__name__}", getattr(given, name), parameters_of(getattr(kind, name)))


class WindowSettings:
    """Collects the settings of a windowed stream. `method`: the one that made it."""

    def __init__(self, window_assigner: Any, method: str) -> None:
        check_assigner(window_assigner, method)
        self.assigner: WindowAssigner[Any, Any] = window_assigner
        self.trigger: Trigger[Any, Any] | None = None
        self.evictor: Evictor[Any, Any] | None = None
        self.allowed_lateness_ms = 0
        self.late_tag: OutputTag | None = None

    @property
    def late_tag_id(self) -> str | None:
        return None if self.late_tag is None else self.late_tag.tag_id

    @property
    def rule(self) -> Assigner | MergingAssigner | None:
        """Return the rule of windows that fire at their ends by event time alone; None: theirs is another trigger."""
        if (
            self.evictor is not None
            or not self.assigner.is_event_time()
            or type(self._trigger(None)) is not EventTimeTrigger
        ):
            return None
        return rule_of(self.assigner)

    def _trigger(self, environment: Any) -> Any:
        return self.assigner.get_default_trigger(environment) if self.trigger is None else self.trigger

    def spec(
        self,
        environment: Any,
        row_type: TypeInformation | None,
        element_type: TypeInformation | None,
        reduce: ReduceFunction | None,
        aggregate: AggregateFunction | None,
        process: AnyWindowFunction | None,
    ) -> AnyWindowSpec:
        """Return the spec of the windows' operator. Raises TypeError or ValueError."""
        if aggregate is not None and isinstance(self.assigner, MergingWindowAssigner):
            check_merge(aggregate)
        functions: dict[str, Any] = {
            "allowed_lateness_ms": self.allowed_lateness_ms,
            "late_tag": self.late_tag_id,
            "reduce": reduce,
            "aggregate": aggregate,
            "process": process,
            "element_type": element_type,
        }
        rule = self.rule
        if rule is not None:
            return WindowSpec(assigner=rule, window_class=self.assigner._window_class, **functions)
        trigger = self._trigger(environment)
        check_trigger(trigger, self.assigner)
        self._warn(trigger)
        return TriggeredWindowSpec(
            assigner=self.assigner,
            trigger=trigger,
            form=form_of(self.assigner),
            rule=rule_of(self.assigner),
            kind=str(self.assigner) if isinstance(self.assigner, _KNOWN) else type(self.assigner).__name__,
            is_over_once_fired=self.trigger is None and isinstance(self.assigner, _COUNTS),
            evictor=self.evictor,
            row_type=row_type,
            **functions,
        )

    def _warn(self, trigger: Trigger[Any, Any]) -> None:
        """Warn of settings without an effect, which Flink accepts."""
        if self.allowed_lateness_ms and not self.assigner.is_event_time():
            warnings.warn(
                f"allowed_lateness() has no effect on {self.assigner}: rows are late in event time only",
                stacklevel=level_of_program(),
            )
        if self.trigger is None and isinstance(self.assigner, GlobalWindows) and type(trigger) is NeverTrigger:
            warnings.warn(
                "GlobalWindows without a trigger emit nothing: call trigger(), e.g. "
                "trigger(PurgingTrigger.of(CountTrigger.of(10)))",
                stacklevel=level_of_program(),
            )


def count_windows(size: Any, slide: Any) -> CountTumblingWindowAssigner | CountSlidingWindowAssigner:
    """Return the assigner of `count_window()`. Raises ValueError."""
    if slide == 0 and type(slide) is int:
        return CountTumblingWindowAssigner(size)
    return CountSlidingWindowAssigner(size, slide)


_COUNTS = (CountTumblingWindowAssigner, CountSlidingWindowAssigner)
_KNOWN = (*_COUNTS, GlobalWindows)

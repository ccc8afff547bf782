"""A method that another stream has, or that is written in another way: the error says so."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest

from penstock.common import Time, Types
from penstock.datastream import TumblingEventTimeWindows
from penstock.datastream.columnar import count, sum_

ORDERS = Types.ROW_NAMED(["user", "amount"], [Types.STRING(), Types.LONG()])
MINUTE = TumblingEventTimeWindows.of(Time.minutes(1))


@pytest.fixture
def orders(env):
    return env.from_collection([], ORDERS).name("Orders")


@pytest.fixture
def untyped(env):
    return env.from_collection([1]).map(lambda x: x).name("Guess")


def says(kind, *parts):
    return pytest.raises(kind, match=".*".join(parts))


@pytest.mark.parametrize("method", ["window", "reduce", "sum", "min", "max", "min_by", "max_by"])
def test_what_keyed_streams_have(orders, untyped, method):
    with says(AttributeError, rf"^{method}\(\) belongs to keyed streams", "operator 'Orders' is not keyed",
              r"key_by\(\) before it", r"stream\.key_by\('user'\)\." + method):  # fmt: skip
        getattr(orders, method)
    with says(AttributeError, "operator 'Guess' is not keyed", r"stream\.key_by\(lambda row: \.\.\.\)\." + method):
        getattr(untyped, method)
    assert hasattr(orders.key_by("user"), method) and hasattr(orders.key_by(lambda row: row["user"]), method)
    assert not hasattr(orders, method)


@pytest.mark.parametrize("method", ["aggregate", "count", "mean"])
def test_what_streams_have_that_are_keyed_by_columns(orders, untyped, method):
    with says(AttributeError, "keyed by columns", "'Orders' is not keyed", r"stream\.key_by\('user'\)\." + method):
        getattr(orders, method)
    with says(AttributeError, "keyed by columns", "'Orders' is keyed by a selector", r"key_by\('user'\)\." + method):
        getattr(orders.key_by(lambda row: row["user"]), method)
    with says(AttributeError, "'Guess' is keyed by a selector", "no columns yet", "output_type"):
        getattr(untyped.key_by(lambda x: x), method)
    with says(AttributeError, "union of 'Guess' and 'Source: Collection Source' is not keyed"):
        getattr(untyped.union(orders._environment.from_collection([1])), method)
    assert hasattr(orders.key_by("user"), method)


def test_windows_of_streams_that_are_keyed_by_a_selector(orders):
    windows = orders.key_by(lambda row: row["user"]).window(MINUTE)
    for method in ("sum", "count", "min", "max", "mean"):
        with says(AttributeError, rf"^{method}\(\)", "'Orders' is keyed by a selector", r"key_by\('user'\)\.window"):
            getattr(windows, method)
        assert hasattr(orders.key_by("user").window(MINUTE), method)
    for made in (lambda: windows.aggregate(total=sum_("amount")), lambda: windows.aggregate(sum_("amount"))):
        with says(TypeError, "'Orders' is keyed by a selector", r"\.aggregate\(total=sum_\('amount'\)\)"):
            made()
    with pytest.raises(AttributeError, match="'WindowedStream' object has no attribute 'trigger'"):
        windows.trigger  # noqa: B018


def test_aggregates_need_names(orders):
    with says(TypeError, "needs a name", r"aggregate\(sum_amount=sum_\('amount'\)\)"):
        orders.key_by("user").aggregate(sum_("amount"))
    with says(TypeError, "needs a name", r"aggregate\(count=count\(\)\)"):
        orders.key_by("user").window(MINUTE).aggregate(count())
    with says(TypeError, "takes name=aggregate", r"reduce\(\)"):
        orders.key_by("user").aggregate(lambda a, b: a)


def test_rolling_fields_are_checked_where_they_are_known(orders):
    keyed = orders.key_by(lambda row: row["user"])
    for wrong in ("amont", 2, -1):
        with says(ValueError, r"sum\(\): there is no field", "the fields are user, amount"):
            keyed.sum(wrong)
    keyed.sum("amount"), keyed.sum(1)


def test_conditions_that_are_no_functions(orders):
    with says(TypeError, r"filter\(\)", r"'amount >= 10'", r'filter\(pc\.field\("amount"\) >= 10\)', r"lambda row:"):
        orders.filter("amount >= 10")
    with says(TypeError, r'pc\.field\("user"\) == \'x\'\)'):
        orders.key_by("user").filter("user = 'x'")
    with says(TypeError, r'filter\(pc\.field\("a"\) > 1\), with import pyarrow\.compute as pc'):
        orders.filter("user is not null")


def test_expressions_where_a_function_or_a_name_is_needed(orders):
    with says(TypeError, r"map\(\)", r"with_columns\(name=expression\)"):
        orders.map(pc.field("amount"))
    with says(TypeError, "needs a name", r"more=pc\.field\('amount'\) \+ 1", r"with_columns\(more=\.\.\.\)"):
        orders.select(pc.field("amount") + 1)
    with says(TypeError, "one by one", r"select\('user', 'amount'\)"):
        orders.select(["user", "amount"])
    with says(TypeError, r"got 3"):
        orders.select(3)
    with says(TypeError, r"goes to map\(\)"):
        orders.with_columns(more=lambda row: 1)
    with says(TypeError, r"write key_by\('user', 'amount'\)"):
        orders.key_by(["user", "amount"])
    with says(TypeError, r"with_columns\(key=<expression>\)\.key_by\('key'\)"):
        orders.key_by(pc.field("amount"))


def test_other_ways_and_plain_mistakes(orders, untyped):
    with says(AttributeError, r"no groupBy\(\)", "key_by"):
        orders.groupBy("user")
    with says(AttributeError, r"no window_all\(\)", r"key_by\(lambda row: 0\)"):
        orders.window_all(MINUTE)
    with says(AttributeError, r"no filter\(\)", "CoMapFunction"):
        orders.connect(untyped).filter(lambda row: True)
    with pytest.raises(AttributeError, match="'ConnectedStreams' object has no attribute 'keyby'"):
        orders.connect(untyped).keyby  # noqa: B018
    with pytest.raises(AttributeError, match="^'SingleOutputStreamOperator' .* no attribute 'fliter'$") as error:
        orders.fliter  # noqa: B018
    assert (error.value.name, error.value.obj) == ("fliter", orders), "so that Python says: did you mean 'filter'?"

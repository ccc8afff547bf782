"""A shop's invoices in Kafka, exactly once, while slots, driver and broker are killed; and a check from outside.

Run by `make demo-kafka`. It starts a real Kafka broker, which Maven fetches once. It exits with 1 if an invoice is
lost, doubled or wrong.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from examples.orders.run import Run, RunFailed
from examples.orders.shop import Shop
from tools.kafka_broker import BrokerUnavailable

BEFORE_A_KILL = 1_000
VICTIMS = ("slot", "broker", "driver")


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


def demo(directory: Path, orders: int, per_second: float) -> bool:
    """Return whether every invoice is right."""
    shop = Shop(orders, per_second)
    say("starting a Kafka broker with the topics orders, payments and invoices")
    with Run(shop, directory, say) as run:
        say(f"the broker is at {run.broker.bootstrap_servers}; the shop sells {per_second:.0f} times a second")
        say("a supervisor runs: penstock run --ha examples/orders/job.py   (orders + payments -> invoices)")
        for victim in VICTIMS:
            if not run.await_invoices(BEFORE_A_KILL):
                raise RunFailed("the job has finished before all kills: give it more --orders")
            killed_at, seen = time.monotonic(), run.auditor.number
            say(f"{seen:,} invoices can be seen. Killing the {victim} (SIGKILL)")
            run.kill(victim)
            run.await_invoices()
            say(f"new invoices {time.monotonic() - killed_at:.1f} s after the kill")
        say("no more kills; the shop sells the rest")
        lost, wrong = run.finish()
        say(f"an independent consumer of committed records sees {run.auditor.number:,} invoices of {orders:,} orders")
    say(f"lost: {lost.total()}   doubled or wrong: {wrong.total()}")
    return not lost and not wrong


def main() -> None:
    parser = argparse.ArgumentParser(prog="make demo-kafka", description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path("build/demo-kafka"), help="where everything is written")
    parser.add_argument("--orders", type=int, default=30_000)
    parser.add_argument("--per-second", type=float, default=500.0)
    given = parser.parse_args()
    shutil.rmtree(given.dir, ignore_errors=True)
    try:
        is_right = demo(given.dir, given.orders, given.per_second)
    except (BrokerUnavailable, RunFailed) as error:
        sys.exit(f"error: {error}")
    print("EXACTLY ONCE: every order has one invoice, and it is the right one." if is_right else "NOT EXACTLY ONCE.")
    sys.exit(not is_right)


if __name__ == "__main__":
    main()

"""Counts the invoices that the order example loses and doubles while slots, driver and broker are killed at random.

    kafka_kills.py [kills=100] [per_second=200] [seed=0] [minutes=25]

Half of the kills hit a slot, the others the driver or the Kafka broker; each comes when new invoices have shown that
the job has recovered from the one before, or, one in four, while it still recovers. A supervisor starts the driver
again (`--ha`). The kills end after so many minutes. Prints one line of JSON last.
"""

from __future__ import annotations

import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring import Arguments, parse_arguments, print_result

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from examples.orders.run import Run
from examples.orders.shop import Shop

DEFAULTS = {"kills": "100", "per_second": "200", "seed": "0", "minutes": "25"}
VICTIMS = ("slot", "slot", "driver", "broker")
SECONDS_PER_KILL = 14
DURING_RECOVERY = 0.25
DURING_RECOVERY_S_MAX = 8.0


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def measure(args: Arguments) -> dict[str, Any]:
    wanted, seed, per_second = args.whole("kills"), args.whole("seed"), args.number("per_second")
    orders = int((wanted * SECONDS_PER_KILL + 30) * per_second) // 2 * 2
    directory = Path(tempfile.mkdtemp(prefix="penstock-kafka-kills-"))
    chance, deadline = random.Random(seed), time.monotonic() + 60 * args.number("minutes")
    killed = dict.fromkeys(VICTIMS, 0)
    recoveries_s: list[float] = []
    with Run(Shop(orders, per_second), directory, say, seed) as run:
        while run.await_invoices() and sum(killed.values()) < wanted and time.monotonic() < deadline:
            began = time.monotonic()
            while True:
                victim = chance.choice(VICTIMS)
                if run.kill(victim):
                    killed[victim] += 1
                    say(f"kill {sum(killed.values())}: the {victim}, after {run.auditor.number:,} invoices")
                if chance.random() >= DURING_RECOVERY or sum(killed.values()) >= wanted:
                    break
                time.sleep(chance.uniform(0.0, DURING_RECOVERY_S_MAX))
            if run.await_invoices():
                recoveries_s.append(time.monotonic() - began)
        lost, doubled = run.finish()
    if not lost and not doubled:
        shutil.rmtree(directory, ignore_errors=True)
    else:
        say(f"lost: {list(lost)[:5]}, doubled or wrong: {list(doubled)[:5]}; everything is in {directory}")
    return {
        "workload": "kafka-kills",
        "kills": sum(killed.values()),
        **{f"kills_{victim}": number for victim, number in killed.items()},
        "orders": orders,
        "lost": lost.total(),
        "doubled": doubled.total(),
        "recovery_s_p50": statistics.median(recoveries_s) if recoveries_s else None,
    }


def main() -> None:
    print_result(measure(parse_arguments(sys.argv[1:], DEFAULTS)))


if __name__ == "__main__":
    main()

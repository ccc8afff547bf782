"""Plans the faults of a run, and their times."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from simulation.world.faulty_store import StoreFaults

NO_STORE_FAULTS = StoreFaults()
AIMED = ("after_a_restore", "before_a_publication")
"""The moments of the protocol at which a fault can be aimed. See `FaultPlan`."""


@dataclass(frozen=True)
class FaultPlan:
    """Describes the faults of a run.

    They begin when the job runs for the first time; the time between two of them is about `gap_ms`, or (in
    `recovering_share` of the cases) the next one comes directly after the job runs again. `kinds` are drawn from (names
    of methods of `FaultInjector`), `count` of them in all. `store` are the faults of the store at any time, `outage`
    those during an outage. `*_share`: see `SlotKeeper`. `aimed`: "after_a_restore" kills a slot once more at the first
    checkpoint after a restore; "before_a_publication" kills a slot or the driver between a trigger and its publication,
    while the job drains if it ever does. `rescale_share`: the share of resuming drivers that run the job at other
    parallelisms.
    """

    kinds: tuple[str, ...] = ()
    count: int = 0
    gap_ms: float = 100.0
    store: StoreFaults = NO_STORE_FAULTS
    outage: StoreFaults = NO_STORE_FAULTS
    speculation_share: float = 0.0
    retry_share: float = 0.0
    recovering_share: float = 0.0
    rescale_share: float = 0.0
    aimed: str | None = None

    @property
    def is_calm(self) -> bool:
        return self.count == 0 and self.store == StoreFaults(late_ms=self.store.late_ms)


ALL_KINDS = (
    "kill_slot", "kill_slot", "kill_slot", "kill_slot", "kill_two_slots", "break_data_link", "break_control_link",
    "pause_slot", "kill_driver", "kill_driver", "pause_driver", "take_over", "store_outage", "user_failure",
    "commit_failure", "expire_checkpoint", "expire_checkpoint", "clock_jump", "request_checkpoint",
)  # fmt: skip
WITHOUT_LOG = (
    "kill_slot", "break_data_link", "break_control_link", "pause_slot", "user_failure", "commit_failure", "clock_jump",
)  # fmt: skip

RESCALING = (
    "rescale_with_rows_in_flight", "rescale_with_rows_in_flight", "rescale_with_rows_in_flight", "rescale", "take_over",
    "kill_slot", "expire_checkpoint",
)  # fmt: skip
"""One resume at other parallelisms after the other, most of them before the one before has been drained."""

KINDS = frozenset(ALL_KINDS + WITHOUT_LOG + RESCALING) | {
    "rescale_with_uneven_receivers", "suspend_driver", "suspend_slot",
    "cancel", "take_over_awake", "kill_driver_unnoticed", "kill_slot_with_a_stuck_one", "kill_driver_and_slots",
    "stop_checkpoints", "savepoint", "stop_with_savepoint", "drain_with_savepoint", "rescale_live", "lose_place",
    "gain_place",
}  # fmt: skip
"""All that a plan may name."""


def random_faults(random: Random, checkpointing: bool) -> FaultPlan:
    if random.random() < 0.15:
        return FaultPlan(store=StoreFaults(late_ms=random.choice((0.0, 5.0))))
    if checkpointing and random.random() < 0.2:
        return FaultPlan(
            kinds=RESCALING,
            count=random.randint(2, 6),
            gap_ms=random.choice((10.0, 40.0)),
            recovering_share=0.7,
            rescale_share=1.0,
        )
    late_ms = random.choice((0.0, 0.0, 2.0, 20.0))
    store = StoreFaults(late_ms=late_ms)
    if random.random() < 0.3:
        store = StoreFaults(refused=0.02, reply_lost=0.03, late_ms=late_ms)
    kinds = ALL_KINDS if checkpointing else WITHOUT_LOG
    if random.random() < 0.05:
        kinds = (*kinds, "cancel", "cancel")
    rescale_share = random.choice((0.0, 0.5, 1.0))
    if checkpointing and rescale_share:
        kinds = (*kinds, *["kill_driver", "kill_driver", "take_over"] * random.choice((1, 4)))
    return FaultPlan(
        kinds=kinds,
        count=random.randint(1, 6),
        gap_ms=random.choice((10.0, 40.0, 150.0)),
        store=store,
        outage=StoreFaults(refused=0.4, reply_lost=0.3, late_ms=late_ms),
        speculation_share=random.choice((0.0, 0.0, 0.4)),
        retry_share=random.choice((0.0, 0.5)),
        recovering_share=random.choice((0.2, 0.7)),
        rescale_share=rescale_share,
    )

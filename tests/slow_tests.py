"""Names the tests that the quicker commands leave out. `make check` leaves out SLOW, `make test` leaves out THOROUGH,
and `.ci/run` runs all.
"""

from __future__ import annotations

import signal

SLOW = (
    "properties",
    "unit/cli",
    "unit/connectors/test_buckets.py",
    "unit/connectors/test_csv.py",
    "unit/connectors/test_file_rolling.py",
    "unit/connectors/test_file_sink.py",
    "unit/connectors/test_file_sink_resumed.py",
    "unit/connectors/test_json_lines.py",
    "unit/connectors/test_json_sink.py",
    "unit/connectors/test_record_file.py",
    "unit/examples",
    "unit/graph/test_program_classes.py",
    "unit/operators/windows/test_own_windows.py",
    "unit/operators/windows/test_window_semantics.py",
    "unit/runtime/jobs/test_batch_sizes.py",
    "unit/runtime/jobs/test_batch_sizes_restored.py",
    "unit/runtime/jobs/test_changed_graphs.py",
    "unit/runtime/jobs/test_columnar_jobs.py",
    "unit/runtime/input/test_disk_batches.py",
    "unit/runtime/jobs/test_event_time_jobs.py",
    "unit/runtime/jobs/test_hybrid_jobs.py",
    "unit/runtime/jobs/test_rescaled_event_time.py",
    "unit/runtime/jobs/test_rescaled_jobs.py",
    "unit/runtime/jobs/test_small_jobs.py",
    "unit/operators/event_time/test_timers.py",
    "unit/savepoints/test_lazy_state.py",
    "unit/spark/process/test_slot_imports.py",
    "unit/spark/process/test_system_clock.py",
    "unit/state/test_copied_databases.py",
    "unit/state/test_incremental.py",
    "unit/state/test_lazy_checkpoints.py",
    "unit/state/test_row_backends.py",
    "unit/state/test_snapshots.py",
    "unit/testing/test_every_operator.py",
    "unit/testing/test_verify_operator.py",
)
"""Files and folders of unit tests that take seconds each."""

THOROUGH = (
    # Clusters and drivers that are killed: minutes each, and what they show of the protocol the simulation does, too.
    "chaos",
    "spark/test_supervised.py",
    # Rules that are broken on purpose: a change of the protocol runs its own, and all of them take half an hour.
    "simulation/test_*_mutants.py",
    "simulation/test_mutants.py",
    "simulation/test_kept_plans.py::test_a_kept_plan_sees_what_was_wrong",
    # More plans, and more ways to take checkpoints under real threads, next to some that stay.
    "simulation/test_plans.py::test_a_plan_that_is_drawn_and_one_that_is_read_have_the_same_trace[105]",
    "simulation/test_plans.py::test_a_plan_that_is_drawn_and_one_that_is_read_have_the_same_trace[11",
    "simulation/test_stress.py::test_source_key_by_sink_on_two_slots[aligned]",
    "simulation/test_stress.py::test_checkpoints_in_the_drivers_memory",
    # Eighty kills each, next to the one of a stop that stays.
    "simulation/test_scenarios.py::test_the_schedule_comes_about_and_breaks_nothing[killed-at-each-step-of-a-drain]",
    "simulation/test_scenarios.py::test_the_schedule_comes_about_and_breaks_nothing[killed-at-each-step-of-a-rescale]",
    # More examples.
    "unit/state/test_copied_databases.py::test_what_a_copy_and_the_runs_behind_it_restore_to[60",
    "unit/state/test_copied_databases.py::test_what_a_copy_and_the_runs_behind_it_restore_to[30-12]",
    "unit/state/test_lazy_checkpoints.py::test_what_is_restored_lazily_is_what_was_stored[12]",
    # The demo, and all programs of the documentation.
    "spark/test_demo.py",
    "spark/test_docs.py",
    # A browser.
    "spark/test_dashboard.py",
    # A kill at another moment, and another signal, next to one that stays.
    "spark/test_live_rescale.py::test_a_slot_that_is_killed_during_a_rescale_costs_no_row[at once]",
    f"spark/test_command_line.py::test_penstock_run_is_interrupted_and_goes_on_from_latest[{signal.SIGTERM}]",
    # An environment of its own, for the wheel.
    "spark/test_installed_wheel.py",
    # A process takes ten seconds to import.
    "spark/test_slots.py::test_a_slot_that_waits_for_a_place_or_starts_slowly_is_not_given_up",
)
"""Files, folders and single tests that take long, and see little that others do not. What stands before `::` is a
pattern of `Path.glob`."""

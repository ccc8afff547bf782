"""Which tests the quicker commands leave out. `make check` leaves out SLOW, `make test` leaves out THOROUGH, and
`.ci/run` runs all.
"""

from __future__ import annotations

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
    "unit/runtime/test_batch_sizes.py",
    "unit/runtime/test_batch_sizes_restored.py",
    "unit/runtime/test_changed_graphs.py",
    "unit/runtime/test_columnar_jobs.py",
    "unit/runtime/test_event_time_jobs.py",
    "unit/runtime/test_rescaled_event_time.py",
    "unit/runtime/test_rescaled_jobs.py",
    "unit/runtime/test_small_jobs.py",
    "unit/runtime/test_timers.py",
    "unit/runtime/test_window_semantics.py",
    "unit/spark/test_slot_imports.py",
    "unit/spark/test_system_clock.py",
    "unit/state/test_copied_databases.py",
    "unit/state/test_incremental.py",
    "unit/state/test_row_backends.py",
    "unit/state/test_snapshots.py",
)
"""Files and folders of unit tests that take seconds each."""

THOROUGH = (
    "chaos",
    "simulation/test_*_mutants.py",
    "simulation/test_mutants.py",
    "spark/test_demo.py",
    "spark/test_docs.py",
    "spark/test_supervised.py",
)
"""Broken rules that the simulation has to see, clusters and drivers that are killed, the demo, and all programs of the
documentation. Each is a pattern of `Path.glob`."""

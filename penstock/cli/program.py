"""Runs a user's program as its main module, and shows of its errors what the user should see."""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path

from penstock.common.job_execution import JobExecutionError
from penstock.common.job_status import JobStatus
from penstock.common.options import HighAvailabilityOptions, OptionError
from penstock.common.program.excepthook import EXIT_INTERRUPTED, format_uncaught, is_refused_path
from penstock.common.settings.configuration_sources import DYNAMIC_OPTIONS_VARIABLE, load_configuration

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_TAKEN_OVER = 3


def run_program(program: Path, arguments: list[str], options: dict[str, str]) -> int:
    """Run `program` in this process; return its exit code. Its own `sys.exit` counts."""
    os.environ[DYNAMIC_OPTIONS_VARIABLE] = json.dumps(options)
    program = program.absolute()
    sys.argv = [str(program), *arguments]
    sys.path.insert(0, str(program.parent))
    try:
        runpy.run_path(str(program), run_name="__main__")
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        print(stop.code, file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        print("penstock: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except OptionError as error:
        _remember(error)
        print(f"penstock: {error}", file=sys.stderr)
        return EXIT_USAGE
    except JobExecutionError as error:
        _remember(error)
        print(format_uncaught(error, str(program)), file=sys.stderr, end="")
        return _exit_code(error)
    except Exception as error:
        _remember(error)
        print(format_uncaught(error, str(program)), file=sys.stderr, end="")
        return EXIT_USAGE if is_refused_path(error) else EXIT_FAILED
    return 0


def _remember(error: Exception) -> None:
    """Keep an uncaught error where the interpreter does: whoever looks at the end sees that the program has failed."""
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__


def _exit_code(error: JobExecutionError) -> int:
    if error.status is JobStatus.SUSPENDED:
        return EXIT_TAKEN_OVER
    is_available = load_configuration().get(HighAvailabilityOptions.HA_MODE) != "none"
    # A supervisor starts again what ends with an error, and the user has cancelled this job for good.
    return 0 if is_available and error.status is JobStatus.CANCELED else EXIT_FAILED

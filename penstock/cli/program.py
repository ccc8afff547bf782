"""Runs a user's program as its main module, and shows of its errors what the user should see."""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path

from penstock.common.configuration_sources import DYNAMIC_OPTIONS_VARIABLE
from penstock.common.excepthook import EXIT_INTERRUPTED, format_uncaught
from penstock.common.options import OptionError

EXIT_FAILED = 1
EXIT_USAGE = 2
_STORE_ERROR = ("penstock.storage.store", "StoreError")


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
        print(f"penstock: {error}", file=sys.stderr)
        return EXIT_USAGE
    except Exception as error:
        if _is_refused_path(error):
            print(f"penstock: {error}", file=sys.stderr)
            return EXIT_USAGE
        print(format_uncaught(error, str(program)), file=sys.stderr, end="")
        return EXIT_FAILED
    return 0


def _is_refused_path(error: Exception) -> bool:
    """Return whether a directory that -s or an option names cannot be used. (An error class that has not been imported
    was not raised.)
    """
    for module, name in (("penstock.jobmaster.identity", "RestoreSourceError"), _STORE_ERROR):
        if module in sys.modules and isinstance(error, getattr(sys.modules[module], name)):
            return True
    return False

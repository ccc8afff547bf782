"""Runs `python -m penstock.simulation`. What spawned processes must import again is in `command_line`."""

import sys

from penstock.simulation.command_line import main

if __name__ == "__main__":
    sys.exit(main())

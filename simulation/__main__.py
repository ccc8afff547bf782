"""Runs `python -m simulation`. What spawned processes must import again is in `command_line`."""

import sys

from simulation.command_line import main

if __name__ == "__main__":
    sys.exit(main())

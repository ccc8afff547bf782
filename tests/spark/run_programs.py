"""Runs programs in one process, so that they share one Spark: a path per line of standard input, each run as the main
module; after each a line says how it ended."""

from __future__ import annotations

import runpy
import sys
import traceback
from pathlib import Path

ENDED = "\x1e ended: "


def main() -> None:
    for line in sys.stdin:
        path = Path(line.strip())
        sys.argv = [str(path)]
        sys.path.insert(0, str(path.parent))
        try:
            runpy.run_path(str(path), run_name="__main__")
            end = "well"
        except BaseException:
            traceback.print_exc()
            end = "with an error"
        finally:
            sys.path.remove(str(path.parent))
        sys.stderr.flush()
        print(f"{ENDED}{end}", flush=True)


if __name__ == "__main__":
    main()

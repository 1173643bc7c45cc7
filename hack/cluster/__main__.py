"""``python hack/cluster COMMAND``: makes this folder importable as `cluster` and runs it."""

import sys
from pathlib import Path

if __package__ in (None, ""):
    here = Path(__file__).resolve().parent
    # This folder would put `_config` and the rest at the top level: the one above is wanted.
    sys.path[:] = [
        str(here.parent),
        *(entry for entry in sys.path if Path(entry or ".").resolve() != here),
    ]

from cluster._cli import main  # found by way of the path set above

if __name__ == "__main__":
    sys.exit(main())

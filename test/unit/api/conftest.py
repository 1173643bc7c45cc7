"""Makes the scripts in hack/ importable."""

import sys
from pathlib import Path

HACK = str(Path(__file__).resolve().parents[3] / "hack")
if HACK not in sys.path:
    sys.path.append(HACK)

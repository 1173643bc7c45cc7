"""``python hack/cluster COMMAND``, with any Python: the project's environment runs it."""

import os
import sys
from pathlib import Path

VENV = Path(__file__).resolve().parents[2] / ".venv"

try:
    from hack.cluster._cli import main
except ModuleNotFoundError as error:
    if Path(sys.prefix) == VENV or not (VENV / "bin/python").exists():
        sys.exit(f"cluster: {error}; `make setup` creates the environment of this tool")
    python = str(VENV / "bin/python")
    os.execv(python, [python, *sys.argv])

if __name__ == "__main__":
    sys.exit(main())

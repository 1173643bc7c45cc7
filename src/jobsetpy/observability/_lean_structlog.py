"""structlog without rich.

structlog imports rich if it is installed, to draw tracebacks in colours with the frames' local
variables. Our log has plain ones; rich and its 66 modules take 3 MB of every manager and a twelfth
of its start. The commands that draw tables import rich themselves.
"""

from __future__ import annotations

import sys

if "structlog" in sys.modules or "rich" in sys.modules:
    import structlog
else:
    sys.modules["rich"] = None  # type: ignore[assignment] # as documented: its import fails
    try:
        import structlog
    finally:
        del sys.modules["rich"]

__all__ = ["structlog"]

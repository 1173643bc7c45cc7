"""Signal handlers with which the agent stops immediately.

It has nothing to clean up, so a signal needs no event loop and no cancellation, and the handler can
be set before anything else is imported.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Final, NoReturn

EXIT_STOPPED: Final = 128 + signal.SIGTERM
"""Exit code after a stop signal while the work is not done; not 0, which would mean success."""


def leave_on_signals(code: int = 0) -> None:
    """Have SIGTERM and SIGINT end the process with ``code`` at any point.

    A container's first process gets no default action for signals: without a handler, a SIGTERM
    that comes while modules load would be lost, and the pod would wait out its grace period.
    """

    def leave(_signum: int, _frame: FrameType | None) -> NoReturn:
        os._exit(code)

    signal.signal(signal.SIGTERM, leave)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in a shell's background job
        signal.signal(signal.SIGINT, leave)

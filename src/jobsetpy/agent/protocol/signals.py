"""How the agent stops: at once.

It holds nothing that must be put in order, so a signal needs no event loop, no cancellation and no
clean-up; and the handler can be set before anything else is imported.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import NoReturn


def leave_on_signals(code: int = 0) -> None:
    """Have SIGTERM and SIGINT end the process with ``code``, wherever it is.

    A container's first process gets no default action for signals: without a handler, a SIGTERM
    that comes while modules load would be lost, and the pod would wait out its grace period.
    """

    def leave(_signum: int, _frame: FrameType | None) -> NoReturn:
        os._exit(code)

    signal.signal(signal.SIGTERM, leave)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as a shell's background job has it
        signal.signal(signal.SIGINT, leave)

"""Signals become an event: the first asks for a graceful stop, the second ends at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stop_on_signals(
    stop: asyncio.Event, signals: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGINT)
) -> Iterator[None]:
    """Within the block, the first of ``signals`` sets ``stop``.

    A second one ends the process at once with 128 + its number: whoever sends it twice is tired of
    waiting. Outside the block the previous handlers are back.
    """
    loop = asyncio.get_running_loop()

    def handle(number: signal.Signals) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    for number in signals:
        loop.add_signal_handler(number, handle, number)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)

"""Failure reasons that the worker's processes report before they end.

A process under ``preload.py`` has its own descriptor, named by ``JOBSET_REPORT_FD`` at a cold
start, or the one on which it waited as a standby process. When its program raises, it writes
``failed CODE TEXT`` there, and ends without the interpreter's teardown.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import Final

from jobsetpy.agent.protocol.settings import is_number
from jobsetpy.agent.supervisor.cause import printable
from jobsetpy.agent.supervisor.worker.processes import start_with_channel

FD_VARIABLE: Final = b"JOBSET_REPORT_FD"
_LONGEST: Final = 8192


class LastWords:
    """Descriptors of the current worker's processes.

    Args:
        on_failure: called with the exit code and the reason, free of control characters.
    """

    def __init__(self, on_failure: Callable[[int, str], None]) -> None:
        self._on_failure = on_failure
        self._channels: set[socket.socket] = set()

    def start(
        self, start: Callable[[Mapping[bytes, bytes]], int], environ: Mapping[bytes, bytes]
    ) -> int:
        """Start a process with such a descriptor and return its process id.

        Raises:
            OSError: the process could not be started.
        """
        pid, channel = start_with_channel(start, environ, FD_VARIABLE)
        self.follow(channel)
        return pid

    def follow(self, channel: socket.socket) -> None:
        """Read from the descriptor of a process, which does not block."""
        self._channels.add(channel)
        asyncio.get_running_loop().add_reader(channel, self._hear, channel)

    def read(self) -> None:
        """Read pending reports: the exit of a process may be noticed before its report."""
        for channel in list(self._channels):
            self._hear(channel)

    def close(self) -> None:
        """Close all descriptors: the worker has ended."""
        for channel in list(self._channels):
            self._forget(channel)

    def _hear(self, channel: socket.socket) -> None:
        try:
            said = channel.recv(_LONGEST)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if not said:
            self._forget(channel)
            return
        for line in said.decode("utf-8", "replace").split("\n"):
            word, _, rest = line.partition(" ")
            code, _, text = rest.partition(" ")
            if word == "failed" and is_number(code, 1, 255):
                self._on_failure(int(code), printable(text))

    def _forget(self, channel: socket.socket) -> None:
        asyncio.get_running_loop().remove_reader(channel)
        self._channels.discard(channel)
        channel.close()

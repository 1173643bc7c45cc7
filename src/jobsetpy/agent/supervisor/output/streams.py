"""The container's output streams, behind pipes of the agent.

The agent's own descriptors 1 and 2 become the pipes' ends, so all that inherits them writes there:
the worker, standby processes, the agent's log. One thread for each stream copies the bytes to where
they went before. It waits for nothing else: a copy for the matching process is only offered.

The pipes are the container's for all epochs, hence nothing is reordered between two workers, and
what a worker has written before it crashed is copied after its end.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat
import sys
import termios
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

CHUNK: Final = 128 * 1024
"""Maximum number of bytes that are copied at a time; a message of a pair of sockets takes them."""
DRAIN_S: Final = 10.0
"""Maximum time in seconds at the pod's end in which no byte can be written, before it is lost."""
PIPE: Final = 1 << 20
"""Capacity of pipes, the maximum that Linux grants everybody: few changes of process move much."""
SKIPPED: Final = 8 << 20
"""Number of bytes that are not offered after a piece that was dropped: there is too much output,
and the kernel can move it from pipe to pipe without a copy. Ends early when the pipe is empty."""
_POLL_S: Final = 0.001


class Tap(Protocol):
    """Object that is offered each piece of output; it never waits."""

    def offer(self, stream: int, run: int, data: memoryview) -> bool:
        """Take a piece, or drop it and return False.

        Args:
            stream: index of the stream.
            run: number of the worker's run that has written it.
            data: the bytes; valid during the call.
        """
        ...

    def miss(self, stream: int, count: int) -> None:
        """Note bytes that were not offered."""
        ...


class Stream:
    """One of the container's output streams.

    Args:
        index: its index, for the tap.
        numbers: the descriptors of this process that become the pipe.
        tap: is offered each piece.

    Raises:
        OSError: there is no pipe, or the descriptor is closed.
    """

    def __init__(self, index: int, numbers: Sequence[int], tap: Tap) -> None:
        self._index = index
        self._numbers = numbers
        self._tap = tap
        self._target = os.dup(numbers[0])
        try:
            self._reader, writer = os.pipe2(os.O_CLOEXEC)
        except OSError:
            os.close(self._target)
            raise
        # A user's limit may forbid it. The target can be something else, such as a file.
        for pipe in (self._reader, self._target):
            with suppress(OSError):
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE)
        for number in numbers:
            os.dup2(writer, number)
        os.close(writer)
        self._read = self._written = 0
        self._taking = threading.Lock()
        """Held from taking bytes out of the pipe until they are counted, never for a wait."""
        self._run = 0
        self._runs: deque[tuple[int, int]] = deque()
        """Offset of the beginning of each run that has not been read yet, and the run."""
        self._skip = 0
        self._moves = stat.S_ISFIFO(os.fstat(self._target).st_mode)
        self.broken: OSError | None = None
        """Error for which output was lost, or the stream closed."""
        self._thread = threading.Thread(target=self._copy, name=f"output-{index}", daemon=True)

    def start(self) -> None:
        """Start to copy."""
        self._thread.start()

    @property
    def is_behind(self) -> bool:
        """Return True if there are bytes in the pipe, or on their way."""
        return self._written < self._end() and self._thread.is_alive()

    def begin_run(self, run: int) -> None:
        """Assign what is written from now on to another run of the worker."""
        self._runs.append((self._end(), run))

    def _end(self) -> int:
        """Return the number of bytes that have been written into the pipe so far."""
        waiting = bytearray(4)
        with self._taking:
            with suppress(OSError):
                fcntl.ioctl(self._reader, termios.FIONREAD, waiting)
            return self._read + int.from_bytes(waiting, "little")

    def close(self) -> None:
        """Restore the descriptors, and wait until what is in the pipe now has been copied.

        Processes that outlive the worker may still write into the pipe: that is not waited for.
        """
        end = self._end()
        for number in self._numbers:
            with suppress(OSError):
                os.dup2(self._target, number)
        seen, since = self._written, time.monotonic()
        while self._written < end and self._thread.is_alive():
            if seen != self._written:
                seen, since = self._written, time.monotonic()
            elif time.monotonic() > since + DRAIN_S:
                return
            time.sleep(_POLL_S)

    def _copy(self) -> None:
        buffer = bytearray(CHUNK)
        view = memoryview(buffer)
        while True:
            if self._skip > 0 and self._moves and self._move():
                continue
            select.select([self._reader], [], [])
            with self._taking:
                count = os.readv(self._reader, [buffer])
                self._read += count
            if not count:
                return
            data = view[:count]
            with suppress(Exception):  # matching must never cost a byte
                self._skip = 0 if self._offer(data, self._read - count) else SKIPPED
            try:
                self._write(data)
            except OSError as error:
                self.broken = error
                if error.errno == errno.EPIPE:
                    # Its reader has gone, which the next writer is to notice as it did before.
                    os.close(self._reader)
                    return
            self._written += count

    def _move(self) -> bool:
        """Move bytes without a look at them; return False if the kernel cannot, or none is left."""
        if self._end() == self._read:
            self._skip = 0  # it is no flood any longer: what comes next is matched
            return False
        select.select([], [self._target], [])
        try:
            with self._taking:
                count = os.splice(self._reader, self._target, PIPE, flags=os.SPLICE_F_NONBLOCK)
                self._read += count
        except BlockingIOError:
            return True  # another process has filled the target meanwhile
        except OSError:
            self._moves = False  # the target has an error, which a write will show
            return False
        self._written += count
        self._skip -= count
        self._tap.miss(self._index, count)
        return count > 0

    def _offer(self, data: memoryview, start: int) -> bool:
        while self._runs and self._runs[0][0] < start + len(data):
            end, run = self._runs.popleft()
            if end > start:
                self._tap.offer(self._index, self._run, data[: end - start])
                data, start = data[end - start :], end
            self._run = run
        return self._tap.offer(self._index, self._run, data)

    def _write(self, data: memoryview) -> None:
        while data:
            try:
                data = data[os.write(self._target, data) :]
            except BlockingIOError:
                # Another process that has the stream may have made it non-blocking.
                select.select([], [self._target], [])


def open_streams(tap: Tap) -> tuple[list[Stream], list[str]]:
    """Return the streams behind pipes, and why a stream has none.

    Streams that are one file, as with ``2>&1``, share a pipe, which keeps the order of their bytes.
    A terminal stays as it is, since a program that tests for one has to find it.
    """
    groups: dict[tuple[int, int], list[int]] = {}
    problems: list[str] = []
    names = ((1, "standard output", sys.__stdout__), (2, "standard error", sys.__stderr__))
    for number, name, file in names:
        if file is None:  # closed when Python started; the number may be that of another file now
            problems.append(f"{name} is closed")
        elif os.isatty(number):
            problems.append(f"{name} is a terminal")
        else:
            found = os.fstat(number)
            groups.setdefault((found.st_dev, found.st_ino), []).append(number)
    streams = []
    for index, numbers in enumerate(groups.values()):
        try:
            streams.append(Stream(index, numbers, tap))
        except OSError as error:
            problems.append(f"there is no pipe for descriptor {numbers[0]}: {error}")
    return streams, problems

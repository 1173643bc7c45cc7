"""The process in which the worker's lines are matched, next to the agent.

A pattern may take any time: here it holds up neither the agent nor the output. The process is a
fork of the agent, with whose pages it shares its memory. It gets pieces of output as messages of a
pair of sockets, which holds a few of them; what does not fit is dropped, and counted. A search that
takes too long is interrupted, and its pattern is no longer used.
"""

from __future__ import annotations

import asyncio
import gc
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NoReturn

import msgspec

from jobsetpy.agent.supervisor.output.streams import CHUNK
from jobsetpy.agent.supervisor.worker.processes import Processes
from jobsetpy.aio import Timer
from jobsetpy.api.log_lines import LogRule, Matcher, Seen, Splitter, bounded

_HEADER: Final = 6
"""Bytes before each piece: the stream, 1 after a gap, the run."""
_PING: Final = 255
"""In place of a stream: request for an answer, even without findings."""
_BUFFER: Final = 1 << 20
REPORT_S: Final = 0.05
"""Maximum time in seconds for which findings are kept while there is more output."""
BAR_MS: Final = 200
"""Time in milliseconds after which a progress bar is a line although its end has not come: that is
the beginning of the next one."""
FIRST_PAUSE_S: Final = 1.0
MAX_PAUSE_S: Final = 60.0
NICE: Final = 10
"""Priority below that of worker and agent: a flood of output is matched as far as there is time."""


class Patterns(msgspec.Struct, frozen=True, kw_only=True):
    """Patterns and rules to match.

    Args:
        progress: patterns of progress, by name.
        rules: rules on lines.
    """

    progress: dict[str, str] = {}
    rules: Sequence[LogRule] = ()


class Matching:
    """The process, started again when it ends.

    Args:
        patterns: what it matches.
        processes: children of the agent, among which it is aside.
        on_seen: called with findings.
        on_end: called with its exit code when it has ended by itself.
    """

    def __init__(
        self,
        patterns: Patterns,
        processes: Processes,
        *,
        on_seen: Callable[[Seen], None],
        on_end: Callable[[int], None],
    ) -> None:
        self._patterns = patterns
        self._processes = processes
        self._on_seen = on_seen
        self._on_end = on_end
        self._lock = threading.Lock()
        """Held for a send, so that no other file gets the descriptor in the meantime."""
        self._socket: socket.socket | None = None
        self._pid = 0
        self._gaps: set[int] = set()
        self.dropped = 0
        """Number of bytes that were not matched."""
        self._again = Timer()
        self._pause = FIRST_PAUSE_S
        self._closed = False

    def start(self) -> None:
        """Start the process."""
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError:
            self._restart()
            return
        with theirs:
            for each in (ours, theirs):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
            try:
                pid = os.fork()
            except OSError:
                ours.close()
                self._restart()
                return
            if not pid:
                _become(theirs, self._patterns)
        with suppress(OSError):
            os.setpgid(pid, pid)
        self._processes.keep_aside(pid, self._ended)
        ours.setblocking(False)
        asyncio.get_running_loop().add_reader(ours, self._hear, ours)
        with self._lock:
            self._pid, self._socket = pid, ours

    @property
    def runs(self) -> bool:
        """Return True if the process runs."""
        return self._socket is not None

    def use(self, patterns: Patterns) -> None:
        """Match other patterns after the next start."""
        self._patterns = patterns

    def offer(self, stream: int, run: int, data: memoryview) -> bool:
        """Send a piece of output if the process is not behind; called by the streams' threads."""
        header = bytes((stream, stream in self._gaps)) + run.to_bytes(4, "little")
        with self._lock:
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.sendmsg([header, data], (), socket.MSG_DONTWAIT)
                    self._gaps.discard(stream)
                    return True
        self.miss(stream, len(data))
        return False

    def ping(self) -> bool:
        """Ask for an answer after all that was sent; return False if that is not possible now."""
        with self._lock:
            if self._socket is None:
                return False
            try:
                self._socket.send(bytes((_PING, *bytes(_HEADER - 1))), socket.MSG_DONTWAIT)
            except OSError:
                return False
        return True

    def miss(self, stream: int, count: int) -> None:
        """Note bytes that were not sent."""
        with self._lock:
            self._gaps.add(stream)
            self.dropped += count

    def close(self) -> None:
        """End the process, and start no other."""
        self._closed = True
        self._again.cancel()
        self._processes.kill_aside(self._pid)
        self._disconnect()

    def _hear(self, channel: socket.socket) -> None:
        try:
            data = channel.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(channel)  # its end is noticed next
            return
        self._pause = FIRST_PAUSE_S
        self._on_seen(msgspec.json.decode(data, type=Seen))

    def _ended(self, code: int) -> None:
        self._disconnect()
        if not self._closed:
            self._on_end(code)
            self._restart()

    def _restart(self) -> None:
        self._again.start(self._pause, self.start)
        self._pause = min(2 * self._pause, MAX_PAUSE_S)

    def _disconnect(self) -> None:
        with self._lock:
            channel, self._socket, self._pid = self._socket, None, 0
        if channel is not None:
            asyncio.get_running_loop().remove_reader(channel)
            channel.close()


def _become(channel: socket.socket, patterns: Patterns) -> NoReturn:
    """Turn this fork of the agent into the matching process."""
    code = 1
    try:
        _leave_agent(channel.fileno())
        gc.disable()
        _match(channel, Matcher(patterns.progress, patterns.rules, limit=bounded()))
        code = 0
    finally:
        os._exit(code)


def _leave_agent(kept: int) -> None:
    """Give up what was the agent's: handlers of signals, and all descriptors but one."""
    signal.set_wakeup_fd(-1)
    for handled in signal.valid_signals():
        if callable(signal.getsignal(handled)):
            signal.signal(handled, signal.SIG_DFL)
    with suppress(OSError):
        os.setpgid(0, 0)
        os.nice(NICE)
    nothing = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - the agent has no pathlib
        if int(name) > 2 and int(name) != kept:
            with suppress(OSError):
                os.close(int(name))


def _match(channel: socket.socket, matcher: Matcher) -> None:
    """Match pieces of output until the agent has ended."""
    buffer = bytearray(_HEADER + CHUNK)
    more = select.poll()
    more.register(channel, select.POLLIN)
    lines = [Splitter(), Splitter()]
    seen, sent_at = Seen(), 0.0
    while True:
        if any(each.is_bar for each in lines) and not more.poll(BAR_MS):
            for each in lines:
                if each.is_bar:
                    matcher.take(each.bar(), seen)
        else:
            count = channel.recv_into(buffer)
            if not count:
                return
            if buffer[0] == _PING:
                seen.caught_up = True
                channel.send(msgspec.json.encode(seen))
                seen = Seen(run=seen.run)
                continue
            run = int.from_bytes(buffer[2:_HEADER], "little")
            if run != seen.run:
                lines = [Splitter(), Splitter()]
                matcher.start()
                seen = Seen(run=run)
            stream = lines[buffer[0]]
            if buffer[1]:
                stream.gap()
            matcher.take(stream.feed(bytes(buffer[_HEADER:count])), seen)
        if not seen.is_empty and (time.monotonic() > sent_at + REPORT_S or not more.poll(0)):
            channel.send(msgspec.json.encode(seen))
            seen, sent_at = Seen(run=seen.run), time.monotonic()

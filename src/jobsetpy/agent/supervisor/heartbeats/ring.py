"""Ring of heartbeats: the socket and the thread below the rules of :mod:`.rules`.

A thread sends the beats, since the agent's event loop has other work when much happens. It shares
only single values with the loop: each is read and written as a whole. Names are looked up in
further threads, as a lookup may take many seconds.
"""

from __future__ import annotations

import asyncio
import errno
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from jobsetpy.agent.protocol.log import Log
from jobsetpy.agent.supervisor.heartbeats.rules import (
    BLOCKED_S,
    Beat,
    Motion,
    RingRules,
    Watch,
    decode,
    encode,
    key_of,
)

MAX_DATAGRAMS: Final = 256
"""Maximum number of datagrams read in a row: a flood must not delay the own beat."""

MAX_BYTES: Final = 64
LOOKUP_S: Final = 1.0
MAX_LOOKUP_S: Final = 30.0
"""First and longest pause in seconds between lookups of the same name."""

Resolve = Callable[[str], tuple[object, ...]]
"""Lookup of a host name: returns the socket address, raises ``OSError`` if there is none."""


class Ring:
    """An agent's part of the ring.

    Args:
        rules: settings.
        jobset_uid: UID of the JobSet, the key of the beats.
        log: log for what neighbours do not send.
        motion: returns the progress of the own worker; called in the ring's thread.
        on_report: called by the event loop when :attr:`report` has changed and should be stored
            now.
        resolve: lookup of a host name; by default that of the system, with the port of the ring.
        bind: IP address to listen on; "" for all addresses of both families.
    """

    def __init__(
        self,
        rules: RingRules,
        *,
        jobset_uid: str,
        log: Log,
        motion: Callable[[], Motion],
        on_report: Callable[[], None],
        resolve: Resolve | None = None,
        bind: str = "",
    ) -> None:
        self._rules = rules
        self._key = key_of(jobset_uid)
        self._log = log
        self._motion = motion
        self._on_report = on_report
        self._bind = bind
        self._resolve = self._look_up if resolve is None else resolve
        self._watch = Watch(rules, time.monotonic())
        self._loop: asyncio.AbstractEventLoop | None = None
        self._socket: socket.socket | None = None
        self._synced = 0
        self._runs = False
        self._reported = 0
        self._closed = False
        self._sending = threading.Lock()
        self._lookups: dict[int, tuple[float, float]] = {}
        self._lookups_of = 0
        self._found: dict[int, tuple[object, ...]] = {}
        self._report: str | None = None

    @property
    def heard_at(self) -> float | None:
        """Time on the monotonic clock of the last beat from another node.

        ``None`` while the ring is off, and as long as nothing was ever heard.
        """
        return None if self._socket is None else self._watch.heard_at

    @property
    def report(self) -> str | None:
        """Report on silent neighbours, for the pod's annotation; ``None`` for nothing."""
        report = self._report
        outdated = report is None or not report.startswith(f"{self._synced} ")
        return None if outdated else report

    def see(self, synced: int, deprecated: int) -> None:
        """Process the epochs of the JobSet's status; older states may follow newer ones."""
        self._synced = max(synced, self._synced)
        self._runs = self._synced > deprecated

    def start(self) -> None:
        """Open the socket and start to send; if that fails, log it and leave the ring off."""
        self._loop = asyncio.get_running_loop()
        try:
            self._socket = _open(self._bind, self._rules.port)
        except OSError as error:
            self._log(
                "no heartbeats: the port cannot be opened, and a silent node is noticed late",
                level="warning",
                port=self._rules.port,
                error=str(error),
            )
            return
        threading.Thread(target=self._run, args=(self._socket,), name="ring", daemon=True).start()

    def close(self) -> None:
        """Tell the neighbours that no other beat follows, and stop."""
        if (opened := self._socket) is not None:
            beat = self._watch.beat(self._synced, Motion.UNKNOWN, bye=True)
            self._send(opened, beat, self._watch.addresses)

    def _run(self, opened: socket.socket) -> None:
        try:
            self._beat(opened)
        except Exception as error:  # noqa: BLE001 - the worker runs on without a ring
            self._log("the ring of heartbeats has failed", level="error", error=repr(error))
        opened.close()
        self._socket = None

    def _beat(self, opened: socket.socket) -> None:
        ready = select.poll()
        ready.register(opened, select.POLLIN)
        due = time.monotonic()
        while not self._closed:
            if ready.poll(max(0.0, due - time.monotonic()) * 1000):
                self._read(opened)
            if (now := time.monotonic()) < due:
                continue
            due = max(due + self._rules.interval_s, now)
            synced, motion = self._synced, self._motion()
            self._look(now, synced, motion)
            self._send(opened, self._watch.beat(synced, motion), self._watch.addresses)
            self._start_lookups(now, synced)

    def _read(self, opened: socket.socket) -> None:
        """Process the datagrams that have arrived."""
        for _ in range(MAX_DATAGRAMS):
            try:
                data, address = opened.recvfrom(MAX_BYTES)
            except BlockingIOError:
                return
            except OSError:  # an earlier datagram could not be delivered
                continue
            beat = decode(data, self._key)
            if beat is None:
                continue
            synced = self._synced
            if self._watch.hear(beat, address, time.monotonic(), synced):
                answer = self._watch.beat(synced, self._motion(), answer=True)
                self._send(opened, answer, [address])

    def _send(self, opened: socket.socket, beat: Beat, addresses: list[tuple[object, ...]]) -> None:
        data = encode(beat, self._key)
        with self._sending:
            if self._closed:  # nothing follows a goodbye
                return
            for address in addresses:
                # What cannot be sent is as silent as what is lost on its way.
                with suppress(OSError):
                    opened.sendto(data, address)
            if beat.bye:
                self._closed = True

    def _look(self, now: float, epoch: int, motion: Motion) -> None:
        was_blocked = self._watch.blocked
        report = self._watch.look(now, epoch, motion, runs=self._runs)
        if self._watch.blocked and not was_blocked:
            self._log(
                "no heartbeats arrive: a silent node is noticed late",
                level="warning",
                seconds=BLOCKED_S,
                hint=f"let the pods reach each other by UDP, port {self._rules.port}",
            )
        if report == self._report:
            return
        if report is not None:
            self._log("neighbours are silent", level="warning", report=report)
        # What was reported of an earlier epoch is removed with the next epoch's patch.
        outdated = report is None and epoch != self._reported
        self._report, self._reported = report, epoch
        if not outdated and self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._on_report)

    # ---- addresses -------------------------------------------------------------------------------

    def _start_lookups(self, now: float, epoch: int) -> None:
        """Look up watched pods that are not heard, each in a thread of its own."""
        if epoch != self._lookups_of:  # all pods exist by now, unlike at the last lookup perhaps
            self._lookups, self._lookups_of = {}, epoch
        while self._found:
            self._watch.resolved(*self._found.popitem())
        wanted = self._watch.unresolved()
        self._lookups = {each: self._lookups.get(each, (0.0, LOOKUP_S)) for each in wanted}
        for position, (at, pause) in self._lookups.items():
            if at <= now:
                self._lookups[position] = (now + pause, min(2 * pause, MAX_LOOKUP_S))
                find = partial(self._find, position, epoch)
                threading.Thread(target=find, name="lookup", daemon=True).start()

    def _find(self, position: int, epoch: int) -> None:
        with suppress(OSError, UnicodeError):
            address = self._resolve(self._rules.host_of(position))
            if epoch == self._lookups_of:  # a late answer may be that of a pod that was replaced
                self._found[position] = address

    def _look_up(self, host: str) -> tuple[object, ...]:
        opened = self._socket
        if opened is None:
            raise OSError(errno.EBADF, "closed")
        family = opened.family
        mapped = socket.AI_V4MAPPED if family == socket.AF_INET6 else 0
        port = self._rules.port
        found = socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM, 0, mapped)
        return found[0][4]


def _open(address: str, port: int) -> socket.socket:
    """Return a bound socket; for all addresses of both families if there is IPv6."""
    if not address:
        with suppress(OSError):
            return _bound(socket.AF_INET6, "::", port)
    return _bound(socket.AF_INET, address, port)


def _bound(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_DGRAM)
    try:
        opened.setblocking(False)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        opened.bind((address, port))
    except OSError:
        opened.close()
        raise
    return opened

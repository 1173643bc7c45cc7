"""List and watch as a state machine that does no I/O, so that any order of faults can be tested.

The driver reads ``command``, executes it, and reports the outcome by one of the ``on_*`` methods;
these return the events for the consumer. Time is passed as an argument, randomness as a function.
One machine follows one collection for ever; it has no final state::

    LISTING ──last page──► WATCHING ◄─┐        from every state: Wait, then continue
       ▲                      │  └────┘ end of stream, silence, failure: same resourceVersion
       └───── expired (410) ──┘
    INITIAL (streaming list) ──marked bookmark──► WATCHING;  refused ──► LISTING
    WATCHING ──the server may be another one──► LISTING or INITIAL

Rules and their reasons:

* A list is consistent (it sets no resourceVersion), so a view never goes back in time within one
  history of etcd. All pages belong to the first page's snapshot; if the continue token expires, the
  list is restarted, the second time in a row without pages.
* After a clean end the watch resumes immediately where it was, without a list: under load the API
  server ends watches several times a minute. Only ends in quick succession (streams that lived less
  than ``QUICK_S``) are spread by back-off with full jitter.
* 410, as a status or as an ERROR event, causes a new list; so does a resourceVersion that fails
  ``STUCK_LIMIT`` times in a row for other reasons, except 429 and a broken network.
* **Silence.** The server guarantees no traffic on a quiet watch: it sends bookmarks about once a
  minute, and two seconds before the end that ``timeoutSeconds`` sets. A watch may thus be dead long
  before a missing bookmark shows it. A stream that is silent for the idle deadline (chosen for each
  stream, between 2/3 and all of ``idle_timeout_s``, 30 to 45 s by default) is therefore closed, and
  the watch resumes on a new connection. The watch after a silent one *probes*: it asks the server
  to end it shortly before the idle deadline. Its last bookmark is the sign of life, and it advances
  the resourceVersion, which would otherwise age out of the server's history (about 75 s) and cost a
  list each time. The first object event ends probing. Cost: one watch request per 30 s or so for
  each quiet watch, on the existing connection. A program with a better sign of life can set
  ``idle_timeout_s`` above 90 s: then ordinary bookmarks keep the stream alive.
* **Another history.** After etcd is restored from a backup, resourceVersions continue from the
  backup's. The API server accepts a watch from a version that it has not reached, and sends nothing
  up to it, bookmarks included; once it has passed that version, nothing tells the histories apart.
  A restore requires that all API servers are stopped. So a watch *resumes* only if the next one
  opens at the first attempt, within ``RESUME_S`` of the last sign of life. Otherwise the machine
  lists. It also lists when a version was confirmed neither by an event nor by a bookmark: in a
  silent watch and the one after it, or for ``SURE_S`` seconds. A list of an older version is marked
  ``rewound``: own writes may be lost, and an equal resourceVersion does not mean equal content.
  Not noticed: a restore during a silence below the idle deadline that ends with neither an error
  nor the end of the stream, if the new history has then passed the last version.
* resourceVersions of one collection increase and compare as integers (KEP-5504). Events older than
  the last one are dropped, so a repeated history does not bring back deleted objects. If one is not
  a number, nothing is compared.
* With a shard, events for objects of other shards advance the resourceVersion and are otherwise
  dropped: servers cannot select by its key. The key of an object may change: an object that leaves
  the shard is reported as deleted.

This module is on the agent's start-up path: standard library and msgspec only.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from math import inf
from typing import Final, Generic, TypeAlias, TypeVar, assert_never

import msgspec

from jobsetpy.aio import Backoff
from jobsetpy.client import WatchFrame
from jobsetpy.errors import (
    ApiError,
    ConnectFailedError,
    DecodeError,
    ExpiredError,
    InvalidError,
    JobSetPyError,
    NotFoundError,
    RetryableApiError,
)
from jobsetpy.informers._events import (
    Applied,
    Bookmark,
    Deleted,
    ListCompleted,
    Listed,
    ListStarted,
    Unreadable,
    WatchEvent,
)
from jobsetpy.informers._observer import EndReason
from jobsetpy.informers._options import DEFAULT_OPTIONS, WatchOptions
from jobsetpy.informers._reading import FrameReader, metadata_of

T = TypeVar("T")

QUICK_S: Final = 1.0
"""Lifetime, in seconds, below which the end of a stream counts as a failure if it is repeated."""
STUCK_LIMIT: Final = 5
"""Number of failures at one resourceVersion after which the machine lists again."""
PROBE_MARGIN_S: Final = 5.0
"""Time between the end of a probing watch, set by the server, and the idle deadline, in seconds."""
END_MARGIN_S: Final = 5.0
"""Time, in seconds, before the end that was asked for, from which an end is not early."""
PROBE_MIN_S: Final = 10
"""Minimum length of a probing watch, in seconds; no probing with idle deadlines below 15 s."""
RESUME_S: Final = 5.0
"""Time in seconds in which all API servers cannot be stopped, restored and started again."""
SURE_S: Final = 600.0
"""Time in seconds without a confirmation of the version after which the end of a watch is followed
by a list. Normally bookmarks confirm it each minute."""
ABSENT_S: Final = 10.0
"""Interval, in seconds, between lists of an optional kind that the server does not know."""
UNREACHABLE: Final = "the API server was unreachable"
STREAMING_TRIES: Final = 3
"""Number of failed streaming lists after which the machine uses paged lists."""


class RequestPage(msgspec.Struct, frozen=True):
    """Request a page of a consistent list; ``continue_token`` is "" for the first."""

    continue_token: str
    limit: int


class OpenWatch(msgspec.Struct, frozen=True):
    """Open a watch after ``resource_version`` that the server ends after ``timeout_seconds``."""

    resource_version: str
    timeout_seconds: int
    send_initial_events: bool = False


class ReadFrames(msgspec.Struct, frozen=True):
    """Read from the open watch, for at most ``idle_s`` seconds."""

    idle_s: float


class Wait(msgspec.Struct, frozen=True):
    """Wait; no stream is open."""

    seconds: float


Command: TypeAlias = RequestPage | OpenWatch | ReadFrames | Wait
"""Command of the machine to its driver."""


class _Phase(enum.Enum):
    LISTING = enum.auto()
    INITIAL = enum.auto()
    WATCHING = enum.auto()


def is_older(version: str, than: str) -> bool:
    """Return whether a resourceVersion is certainly before another (KEP-5504: decimal integers)."""
    if not (version.isdecimal() and than.isdecimal()):
        return False
    return (len(version), version) < (len(than), than)


def _backoff(options: WatchOptions) -> Backoff:
    return Backoff(base=options.backoff_base_s, cap=options.backoff_cap_s, rand=options.rand)


class WatchMachine(Generic[T]):
    """List and watch of one collection, by the rules of this module.

    Args:
        decode: decodes an object from its JSON. Objects need ``metadata`` with at least ``name``,
            ``namespace``, ``uid`` and ``resource_version``.
        kind: name of the kind, for the observer.
        options: scope and limits of the watch.
    """

    __slots__ = (
        *("_alive_at", "_backoff", "_expiries", "_idle_s", "_kind", "_list_backoff", "_list_open"),
        *("_list_version", "_next", "_observer", "_opened_at", "_options", "_phase", "_probing"),
        *("_progressed", "_reader", "_rewound", "_shard", "_streak", "_streaming"),
        *("_streaming_failures", "_stuck", "_sure_at", "_until", "_version", "command"),
    )

    def __init__(
        self,
        decode: Callable[[msgspec.Raw], T],
        *,
        kind: str = "",
        options: WatchOptions = DEFAULT_OPTIONS,
    ) -> None:
        self._kind = kind
        self._options = options
        self._observer = options.observer
        self._shard = options.shard
        self._reader: FrameReader[T] = FrameReader(decode, kind, self._observer)
        self._backoff = _backoff(options)
        self._list_backoff = _backoff(options)
        self._version = ""
        self._list_version = ""
        self._list_open = False  # ListStarted was delivered, ListCompleted not yet
        self._rewound = False  # the list in progress is in another history than the last one
        self._alive_at: float | None = None  # last sign of life of the watch; None: the list
        self._sure_at: float | None = None  # last confirmation of the version; None: at the open
        self._until = 0.0  # time at which the server is asked to end the watch
        self._expiries = 0
        self._streaming = options.streaming
        self._streaming_failures = 0
        self._opened_at: float | None = None
        self._idle_s = options.idle_timeout_s
        self._probing = False
        self._progressed = False
        self._streak = 0  # ends and expiries since a stream lived for QUICK_S
        self._stuck = 0
        self._next: Command | None = None
        self._phase = _Phase.LISTING
        self.command: Command
        """Command for the driver to execute now; unchanged until an ``on_*`` method is called."""
        self._begin_list(0.0)

    # ---------------------------------------------------------------------------------------------
    # Outputs for the driver.

    @property
    def resource_version(self) -> str:
        """Version up to which events were delivered; "" before the first list is complete."""
        return self._version

    @property
    def listed(self) -> bool:
        """True if the last list that began is complete."""
        return self._phase is _Phase.WATCHING

    # ---------------------------------------------------------------------------------------------
    # Inputs.

    def on_waited(self) -> None:
        """The time of a ``Wait`` is over."""
        assert self._next is not None, f"no wait was asked for: {self.command}"
        self.command, self._next = self._next, None

    def on_page(
        self,
        items: Sequence[T],
        resource_version: str,
        continue_token: str,
        bad: Sequence[DecodeError] = (),
    ) -> list[WatchEvent[T]]:
        """The page of ``RequestPage`` was received; ``bad`` are the objects that did not decode."""
        assert isinstance(self.command, RequestPage), f"no page was asked for: {self.command}"
        events: list[WatchEvent[T]] = []
        if not self.command.continue_token:
            self._rewound = self._rewound or is_older(resource_version, self._version)
            events.append(ListStarted(self._rewound))
            self._list_open = True
            # A later page may name a newer version if the server continued from another snapshot;
            # a watch from the first page's version repeats events, one from the newer loses some.
            self._list_version = resource_version
        shard = self._shard
        events.extend(
            Listed(item) for item in items if shard is None or shard.holds(metadata_of(item))
        )
        events.extend(Unreadable(e.namespace, e.name, e.uid) for e in bad if e.name)
        self._list_backoff.reset()
        if continue_token:
            self.command = RequestPage(continue_token, self.command.limit)
        else:
            self._expiries = 0
            self._complete_list(self._list_version, events)
            self._open(0.0)
        return events

    def on_absent(self) -> list[WatchEvent[T]]:
        """The server does not know the kind: there are no objects; list again later."""
        assert isinstance(self.command, RequestPage), f"no page was asked for: {self.command}"
        self._phase = _Phase.LISTING
        self._version = ""
        self._list_open = False
        self._list_backoff.reset()
        wait = ABSENT_S * (1 + self._options.rand() / 5)
        self._go(RequestPage("", self._options.page_limit), wait)
        return [ListStarted(), ListCompleted("")]

    def on_opened(self, now: float) -> None:
        """The watch of ``OpenWatch`` is open; ``now`` in seconds of any clock."""
        assert isinstance(self.command, OpenWatch), f"no watch was asked for: {self.command}"
        initial = self._phase is _Phase.INITIAL
        if not initial and self._alive_at is not None and now - self._alive_at > RESUME_S:
            self._relist("the watch was interrupted for long", 0.0)
            return
        self._opened_at = self._alive_at = now
        self._until = now + self.command.timeout_seconds
        if self._sure_at is None:
            self._sure_at = now
        self._progressed = False
        self._observer.on_watch_open(self._kind, "" if initial else self._version)
        self.command = ReadFrames(self._idle_s)

    def on_frames(self, frames: Sequence[WatchFrame], now: float) -> list[WatchEvent[T]]:
        """Lines of the open watch were received.

        If ``command`` is no longer ``ReadFrames`` afterwards, the driver closes the stream; lines
        after an error are ignored.
        """
        self._alive_at = now
        events: list[WatchEvent[T]] = []
        if self._phase is _Phase.INITIAL and not self._list_open:
            events.append(ListStarted(self._rewound))
            self._list_open = True
        for frame in frames:
            match frame.type:
                case "ADDED" | "MODIFIED" | "DELETED":
                    self._take_object(frame, events, now)
                case "BOOKMARK":
                    self._take_bookmark(frame, events, now)
                case "ERROR":
                    self._take_error(frame, now)
                    break
                case _:
                    self._reader.unknown(frame)
            if not isinstance(self.command, ReadFrames):
                break
        return events

    def on_eof(self, now: float) -> None:
        """The server ended the stream cleanly."""
        if now >= self._until - END_MARGIN_S:
            self._alive_at = now  # the end that was asked for; others end when a server stops
        lived = self._settle(now, "eof")
        if self._phase is _Phase.INITIAL:
            # A server that knows streaming lists does not end one in the middle.
            self._leave_streaming("the server does not know streaming lists")
        else:
            self._resume(0.0 if lived else self._pause_unless_first(), now)

    def on_silence(self, now: float) -> None:
        """The stream was silent for ``idle_s`` seconds; the driver closes it."""
        self._observer.on_silence(self._kind, self._idle_s)
        self._settle(now, "silence")
        if self._phase is _Phase.INITIAL:
            self._leave_streaming("a streaming list fell silent")
        else:
            self._probing = True
            self._alive_at = now  # quiet watches are silent; the next one shows whether it is one
            self._resume(0.0, now)
            self._sure_at = -inf  # a list sets it again

    def on_error(self, error: JobSetPyError, now: float) -> None:
        """A request failed, or the stream broke, with one of the client's errors."""
        opened = self._opened_at is not None
        self._settle(now, "expired" if isinstance(error, ExpiredError) else "broken")
        match self._phase:
            case _Phase.LISTING:
                wait = self._list_failed(error)
            case _Phase.INITIAL:
                wait = self._streaming_failed(error)
            case _Phase.WATCHING:
                wait = self._watch_failed(error, opened=opened)
            case _:
                assert_never(self._phase)
        self._observer.on_failure(self._kind, error, wait)

    # ---------------------------------------------------------------------------------------------
    # Frames.

    def _take_object(self, frame: WatchFrame, events: list[WatchEvent[T]], now: float) -> None:
        shard = self._shard
        foreign = None if shard is None else shard.foreign(frame.object)
        if foreign is None:
            meta, obj, known = self._reader.object(frame)
        else:
            meta, obj, known = metadata_of(foreign), foreign, True
        if meta is None:
            return
        initial, deleted = self._phase is _Phase.INITIAL, frame.type == "DELETED"
        if not initial and not self._advance(meta.resource_version, now):
            return
        self._observer.on_event(self._kind, frame.type)
        if foreign is not None or (shard is not None and known and not shard.holds(meta)):
            deleted = True  # from this shard, in case it was there before
        if obj is None:
            # It does not fit the model: only the identity is known, not the key. The consumer keeps
            # the previous state, which is better than none.
            if initial and not deleted:
                events.append(Unreadable(meta.namespace, meta.name, meta.uid))
        elif deleted:
            events.append(Deleted(obj, known))
        else:
            events.append(Listed(obj) if initial else Applied(obj))

    def _advance(self, version: str, now: float) -> bool:
        """Record the version of an event; return False if the event is older than the last one."""
        if is_older(version, self._version):
            return False
        if version and version != self._version:
            self._version = version
            self._sure_at = now
            self._progressed = True
            self._probing = False
            self._stuck = 0
        return True

    def _take_bookmark(self, frame: WatchFrame, events: list[WatchEvent[T]], now: float) -> None:
        version, ends_list = self._reader.bookmark(frame)
        if not version:
            return
        self._observer.on_event(self._kind, "BOOKMARK")
        if self._phase is _Phase.INITIAL:
            if ends_list:
                self._streaming_failures = 0
                if is_older(version, self._version) and not self._rewound:
                    # Objects were passed on as if equal versions were equal objects.
                    self._rewound = True
                    self._relist("the API server has another history", 0.0)
                else:
                    self._complete_list(version, events)
            return
        if is_older(version, self._version):
            self._settle(now, "error")
            self._relist("the API server has another history", 0.0)
            return
        self._sure_at = now
        if version != self._version:
            self._version = version
            self._stuck = 0
        events.append(Bookmark(version))

    def _take_error(self, frame: WatchFrame, now: float) -> None:
        error = self._reader.error(frame)
        expired = isinstance(error, ExpiredError)
        self._settle(now, "expired" if expired else "error")
        initial = self._phase is _Phase.INITIAL
        wait = self._streaming_failed(error) if initial else self._watch_failed(error, opened=True)
        self._observer.on_failure(self._kind, error, wait)

    # ---------------------------------------------------------------------------------------------
    # Transitions.

    def _go(self, command: Command, wait: float) -> None:
        if wait > 0:
            self.command, self._next = Wait(wait), command
        else:
            self.command, self._next = command, None

    def _begin_list(self, wait: float) -> None:
        """List from scratch."""
        if self._streaming:
            self._phase = _Phase.INITIAL
            self._open(wait)
        else:
            self._phase = _Phase.LISTING
            self._go(RequestPage("", self._options.page_limit if self._expiries < 2 else 0), wait)
        self._list_open = False

    def _relist(self, reason: str, wait: float) -> float:
        self._observer.on_relist(self._kind, reason)
        self._begin_list(wait)
        return wait

    def _complete_list(self, version: str, events: list[WatchEvent[T]]) -> None:
        self._version = version
        self._rewound = False
        self._alive_at = self._sure_at = None
        self._list_open = False
        self._stuck = 0
        self._phase = _Phase.WATCHING
        events.append(ListCompleted(version))

    def _resume(self, wait: float, now: float) -> None:
        """Continue after an end that is not a failure, unless nothing has confirmed the version."""
        if self._sure_at is not None and now - self._sure_at >= SURE_S:
            self._relist("nothing confirms the resourceVersion", wait)
        else:
            self._open(wait)

    def _open(self, wait: float) -> None:
        """Open a watch where the last one ended, with new random deadlines."""
        options = self._options
        self._idle_s = options.idle_timeout_s * (2 + options.rand()) / 3
        low, high = options.server_timeout_s
        seconds = int(low + (high - low) * options.rand())
        if self._probing and self._idle_s >= PROBE_MIN_S + PROBE_MARGIN_S:
            seconds = min(seconds, int(self._idle_s - PROBE_MARGIN_S))
        initial = self._phase is _Phase.INITIAL
        version = "" if initial else self._version
        self._go(OpenWatch(version, max(seconds, 1), initial), wait)

    def _settle(self, now: float, reason: EndReason) -> bool:
        """Record the end of the open stream, if any; return whether it lived for ``QUICK_S``.

        A stream that lived or made progress resets the back-off.
        """
        if self._opened_at is None:
            return False
        lived = now - self._opened_at >= QUICK_S
        self._opened_at = None
        if lived:
            self._streak = 0
            self._backoff.reset()
        elif self._progressed:
            # The server may end it after each event: the streak stays, so that the next end waits,
            # but only briefly.
            self._backoff.reset()
        self._observer.on_watch_end(self._kind, reason)
        return lived

    def _pause_unless_first(self) -> float:
        self._streak += 1
        return 0.0 if self._streak == 1 else self._backoff.next()

    def _list_failed(self, error: JobSetPyError) -> float:
        assert isinstance(self.command, RequestPage), f"no page was asked for: {self.command}"
        if self.command.continue_token and isinstance(error, ExpiredError | InvalidError):
            self._expiries += 1
            wait = 0.0 if self._expiries == 1 else self._list_backoff.next()
            return self._relist("the continue token expired", wait)
        wait = self._list_backoff.next(_retry_after(error))
        if self.command.continue_token and isinstance(error, ConnectFailedError):
            return self._relist(UNREACHABLE, wait)
        if self.command.continue_token and self._counts_as_stuck(error):
            # To a server with another history, the token is from the future.
            return self._relist("the list cannot get past its continue token", wait)
        self._go(self.command, wait)
        return wait

    def _streaming_failed(self, error: JobSetPyError) -> float:
        self._streaming_failures += not isinstance(error, ConnectFailedError)
        refused = isinstance(error, InvalidError)
        if refused or self._streaming_failures >= STREAMING_TRIES:
            self._leave_streaming("the server refuses streaming lists" if refused else "it failed")
            return 0.0
        return self._relist("a streaming list broke", self._backoff.next(_retry_after(error)))

    def _leave_streaming(self, reason: str) -> None:
        self._streaming = False
        self._relist(reason, 0.0)

    def _watch_failed(self, error: JobSetPyError, *, opened: bool) -> float:
        if isinstance(error, ExpiredError):
            return self._relist("the resourceVersion expired", self._pause_unless_first())
        if isinstance(error, InvalidError | NotFoundError):
            return self._relist("the server refuses the watch", self._backoff.next())
        # Not a part of the streak: after an outage with growing back-off, the server's first answer
        # is often that its history is lost, and the list need not wait then.
        wait = self._backoff.next(_retry_after(error))
        if self._counts_as_stuck(error):
            return self._relist("the watch cannot get past its resourceVersion", wait)
        if not opened and not _asks_for_patience(error):
            # A server that has just started refuses connections, then requests, until it has read
            # roles and objects. When it accepts them, its history may have passed the last version.
            if self._streaming:  # a watch itself
                return self._relist(UNREACHABLE, wait)
            self._alive_at = -inf
        self._open(wait)
        return wait

    def _counts_as_stuck(self, error: JobSetPyError) -> bool:
        """Count a failure at one place; return whether it was the last that is accepted there."""
        if isinstance(error, DecodeError | RetryableApiError) and not _asks_for_patience(error):
            self._stuck += 1
        stuck = self._stuck >= STUCK_LIMIT
        if stuck:
            self._stuck = 0
        return stuck


def _retry_after(error: JobSetPyError) -> float | None:
    return error.retry_after if isinstance(error, RetryableApiError) else None


def _asks_for_patience(error: JobSetPyError) -> bool:
    return isinstance(error, ApiError) and error.status == 429

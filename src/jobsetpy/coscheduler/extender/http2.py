"""HTTP/2 protocol of the extender without I/O: bytes in, requests out; answers in, bytes out.

Go's HTTP/1.1 client keeps two idle connections and opens another one for each request beyond, so a
gang of 100 pods costs a hundred handshakes on both sides. Over HTTP/2 all requests share one.

One connection then carries many requests, so the limits of a client are enforced here: the number
of streams, the size of headers and bodies, the time for them, and the number of frames that cost
the server more than the client (above all resets, CVE-2023-44487). Framing and stream states are
handled by the ``h2`` library; the rules are those of RFC 9113.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings
from hyperframe.frame import GoAwayFrame

HEADERS_LIMIT: Final = 16 * 1024
"""Maximum size of a request's unpacked headers, in bytes."""


_SPARE_PER_S: Final = 100.0
_PER_SPARE: Final = 1024
_WINDOW: Final = 256 * 1024
"""Flow-control window for bodies, in bytes."""


class Http2Error(Exception):
    """Fatal connection error; the pending output reports the reason to the client."""


@attrs.frozen
class Request:
    """Complete request."""

    stream: int
    path: str
    body: bytes


@attrs.frozen
class Refused:
    """Request that has to be refused with this status."""

    stream: int
    path: str
    status: int


@attrs.frozen
class Cancelled:
    """Request that was cancelled by the client."""

    stream: int


Happened = Request | Refused | Cancelled


@attrs.frozen(kw_only=True)
class Bounds:
    """Limits of a connection.

    Args:
        streams: maximum concurrent requests; a client opens another connection for more.
        bodies: maximum size of a body by path, in bytes.
        unread: maximum size of all incomplete bodies together, in bytes.
        body_s: maximum time from a request's headers to the end of its body, in seconds.
        spare: burst of frames that cost the server more than the client, such as resets; refilled
            at 100 per second; each KiB of answers adds one more.
    """

    streams: int
    bodies: Mapping[str, int]
    unread: int
    body_s: float
    spare: int


@attrs.define
class _Coming:
    """Request whose body is not complete."""

    path: str
    limit: int
    since: float
    body: bytearray = attrs.field(factory=bytearray)


class Session:
    """Server side of one connection. ``now`` is a monotonic time in seconds.

    Args:
        bounds: limits of the connection.
        now: current time.
    """

    def __init__(self, bounds: Bounds, now: float) -> None:
        self._bounds = bounds
        self._http = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self._http.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: bounds.streams,
                SettingCodes.MAX_HEADER_LIST_SIZE: HEADERS_LIMIT,
                SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW,
            },
        )
        self._http.decoder.max_header_list_size = HEADERS_LIMIT
        self._http.initiate_connection()
        self._http.increment_flow_control_window(_WINDOW)
        self._coming: dict[int, _Coming] = {}
        self._asked: set[int] = set()
        self._answers: dict[int, memoryview] = {}
        self._unread = 0
        self._spare, self._spared_at = float(bounds.spare), now
        self._out = bytearray()
        self.used = False
        """A request was received."""
        self.leaving = False
        """The client was asked to reconnect: new requests are refused."""

    @property
    def open(self) -> int:
        """Number of requests without an answer."""
        return len(self._coming) + len(self._asked) + len(self._answers)

    def to_send(self) -> bytes:
        """Return the bytes to send since the last call."""
        sent = self._http.data_to_send()
        if self._out:
            sent += bytes(self._out)
            self._out.clear()
        return sent

    def receive(self, data: bytes, now: float) -> list[Happened]:
        """Process bytes from the client.

        Raises:
            Http2Error: the client violates the protocol or exceeds its limits.
        """
        out: list[Happened] = []
        try:
            for event in self._http.receive_data(data):
                self._take(event, now, out)
        except H2Error as error:
            raise Http2Error(str(error)) from error
        return out

    def late(self, now: float) -> list[Refused]:
        """Return requests whose bodies have taken too long."""
        ends = now - self._bounds.body_s
        late = [(stream, each) for stream, each in self._coming.items() if each.since <= ends]
        return [self._refuse(stream, each.path, 408) for stream, each in late]

    def answer(self, stream: int, status: int, content: bytes) -> None:
        """Answer a request; no effect if the client no longer waits for it."""
        if stream not in self._asked:
            return
        self._asked.discard(stream)
        headers = [
            (b":status", b"%d" % status),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(content)),
        ]
        try:
            self._http.send_headers(stream, headers)
            self._answers[stream] = memoryview(content)
            self._send(stream)
        except H2Error:
            self._answers.pop(stream, None)  # the stream is closed

    def leave(self) -> None:
        """Make the client reconnect for further requests; open requests continue."""
        if self.leaving:
            return
        self.leaving = True
        last = self._http.highest_inbound_stream_id
        # The library takes its own GOAWAY for the connection's end, so it is bypassed.
        self._out += GoAwayFrame(0, last_stream_id=last).serialize()

    # -- input --------------------------------------------------------------------------------

    def _take(self, event: Event, now: float, out: list[Happened]) -> None:
        match event:
            case RequestReceived():
                self._begin(event, now, out)
            case DataReceived():
                self._more(event, now, out)
            case StreamEnded():
                each = self._coming.pop(event.stream_id, None)
                if each is not None:
                    self._unread -= len(each.body)
                    self._asked.add(event.stream_id)
                    out.append(Request(event.stream_id, each.path, bytes(each.body)))
            case StreamReset():
                self._pay(now)
                if self._forget(event.stream_id):
                    out.append(Cancelled(event.stream_id))
            case ConnectionTerminated():
                self.leaving = True
            case WindowUpdated():
                self._pay(now)
                for stream in [event.stream_id] if event.stream_id else list(self._answers):
                    self._send(stream)
            case _:
                self._pay(now)

    def _begin(self, event: RequestReceived, now: float, out: list[Happened]) -> None:
        stream, self.used = event.stream_id, True
        if self.leaving:
            # It was sent before the client knew; it may be retried elsewhere.
            self._pay(now)
            self._http.reset_stream(stream, ErrorCodes.REFUSED_STREAM)
            return
        fields = {bytes(name): bytes(value) for name, value in event.headers}
        path = fields.get(b":path", b"").decode("latin-1")
        limit = self._bounds.bodies.get(path)
        self._coming[stream] = _Coming(path, limit or 0, now)
        length = fields.get(b"content-length", b"0")
        if limit is None:
            out.append(self._refuse(stream, path, 404))
        elif fields.get(b":method") != b"POST":
            out.append(self._refuse(stream, path, 405))
        elif not length.isdigit() or int(length) > limit:
            out.append(self._refuse(stream, path, 413))

    def _more(self, event: DataReceived, now: float, out: list[Happened]) -> None:
        stream, data = event.stream_id, event.data or b""
        if not data:
            self._pay(now)
        self._http.acknowledge_received_data(event.flow_controlled_length, stream)
        each = self._coming.get(stream)
        if each is None:
            return
        each.body += data
        self._unread += len(data)
        if len(each.body) > each.limit or self._unread > self._bounds.unread:
            out.append(self._refuse(stream, each.path, 413))

    def _refuse(self, stream: int, path: str, status: int) -> Refused:
        self._forget(stream)
        self._asked.add(stream)
        return Refused(stream, path, status)

    def _forget(self, stream: int) -> bool:
        """Forget a request; return whether it was complete."""
        each = self._coming.pop(stream, None)
        if each is not None:
            self._unread -= len(each.body)
        asked = stream in self._asked
        self._asked.discard(stream)
        self._answers.pop(stream, None)
        return asked

    def _pay(self, now: float) -> None:
        bounds = self._bounds
        gained = (now - self._spared_at) * _SPARE_PER_S
        self._spare, self._spared_at = min(self._spare + gained, bounds.spare) - 1, now
        if self._spare < 0:
            self._http.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
            msg = "too many resets, pings or the like"
            raise Http2Error(msg)

    # -- output -------------------------------------------------------------------------------

    def _send(self, stream: int) -> None:
        """Send as much of an answer as the flow-control window allows."""
        left = self._answers.get(stream)
        if left is None:
            return
        while True:
            room = self._http.local_flow_control_window(stream)
            size = min(len(left), room, self._http.max_outbound_frame_size)
            if size <= 0 and left:
                self._answers[stream] = left
                return
            part, left = left[:size], left[size:]
            self._http.send_data(stream, bytes(part), end_stream=not left)
            self._spare += size / _PER_SPARE  # the client has to acknowledge it
            if not left:
                break
        del self._answers[stream]
        state = self._http.streams.get(stream)
        if state is None or state.closed:
            return
        # The rest of a request that is already answered is not needed.
        self._http.reset_stream(stream, ErrorCodes.NO_ERROR)

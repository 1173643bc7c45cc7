"""An HTTP/2 client for tests of servers, with any number of requests on one connection."""

from __future__ import annotations

import asyncio
import contextlib
import json

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, SettingsAcknowledged, StreamEnded, StreamReset

from support import patience

GOAWAY = 7


class Reply:
    """Answer to a request, as far as it has arrived."""

    def __init__(self):
        self.status = 0
        self.body = b""
        self.reset = None
        self.done = False

    @property
    def json(self):
        """The body as JSON."""
        return json.loads(self.body)


class Http2Client:
    """The protocol without I/O; :func:`connected` adds a connection."""

    def __init__(self):
        self.http = H2Connection(H2Configuration(header_encoding="utf-8"))
        self.http.initiate_connection()
        self.replies = {}
        self._bytes = bytearray()
        self.settled = False
        self.sent_away = False
        self.closed = False

    def ask(self, path, body=b"", *, method="POST", end=True, extra=()):
        """Begin a request; return its stream."""
        stream = self.http.get_next_available_stream_id()
        headers = [(":method", method), (":path", path), (":scheme", "https"), (":authority", "x")]
        self.http.send_headers(stream, [*headers, *extra], end_stream=end and not body)
        if body:
            self.http.send_data(stream, body, end_stream=end)
        self.replies[stream] = Reply()
        return stream

    def take(self, data):
        """Process bytes of the server."""
        self._bytes += data
        whole = bytearray()
        while len(self._bytes) >= 9 + (size := int.from_bytes(self._bytes[:3])):
            if self._bytes[3] == GOAWAY:
                self.sent_away = (
                    True  # the library would end the connection, but the server continues
                )
            else:
                whole += self._bytes[: 9 + size]
            del self._bytes[: 9 + size]
        for event in self.http.receive_data(bytes(whole)):
            reply = self.replies.get(getattr(event, "stream_id", None), Reply())
            match event:
                case ResponseReceived():
                    reply.status = int(dict(event.headers)[":status"])
                case DataReceived():
                    reply.body += event.data
                    self.http.acknowledge_received_data(
                        event.flow_controlled_length, event.stream_id
                    )
                case StreamEnded():
                    reply.done = True
                case StreamReset():
                    reply.reset, reply.done = event.error_code, True
                case SettingsAcknowledged():
                    self.settled = True


class Connected(Http2Client):
    """A connection.

    Args:
        reader, writer: of the connection.
    """

    def __init__(self, reader, writer):
        super().__init__()
        self._reader, self._writer = reader, writer
        self.news = patience.News()

    def flush(self):
        """Send pending bytes."""
        self._writer.write(self.http.data_to_send())

    async def post(self, path, content):
        """Send a request and wait for its answer."""
        stream = self.ask(path, json.dumps(content).encode())
        self.flush()
        await self.until(lambda: self.replies[stream].done)
        return self.replies[stream]

    async def until(self, condition, limit_s=30.0):
        """Wait for a condition that received bytes may fulfill."""

        def holds():
            found = condition()
            assert found or not self.closed, "the connection has ended"
            return found

        await self.news.until(holds, limit_s)

    async def ended(self, limit_s=30.0):
        """Wait for the end of the connection."""
        await self.news.until(lambda: self.closed, limit_s)

    async def read(self):
        """Process bytes until the end."""
        with contextlib.suppress(OSError):
            while data := await self._reader.read(65536):
                self.take(data)
                with contextlib.suppress(OSError):
                    self.flush()
                self.news.set()
        self.closed = True
        self.news.set()


@contextlib.asynccontextmanager
async def connected(port, context):
    """Open a connection with HTTP/2."""
    context.set_alpn_protocols(["h2"])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
    client = Connected(reader, writer)
    client.flush()
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(client.read())
        try:
            yield client
        finally:
            writer.close()
            reading.cancel()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

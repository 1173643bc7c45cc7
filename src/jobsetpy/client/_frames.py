"""Splitting of a byte stream, received in arbitrary pieces, into watch frames.

A watch is a sequence of JSON documents, one per line (Kubernetes API concepts, "Efficient detection
of changes"). The server escapes line feeds in strings, so a line feed always ends a document, and
splitting there never splits a character.
"""

from __future__ import annotations

import msgspec

from jobsetpy.client._errors import decode_error
from jobsetpy.client._transport import ByteStream
from jobsetpy.errors import StreamBrokenError

MAX_LINE = 64 * 1024 * 1024
"""Maximum size of a frame in bytes; objects are smaller than etcd's request limit of 1.5 MiB."""


class WatchFrame(msgspec.Struct, frozen=True):
    """One line of a watch: the event's ``type`` and the object's undecoded JSON."""

    type: str
    object: msgspec.Raw


_decode = msgspec.json.Decoder(WatchFrame).decode


class LineSplitter:
    """Splitter and decoder of lines; linear in the number of bytes, also for long lines."""

    __slots__ = ("_pieces", "_size")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[WatchFrame]:
        """Add a piece and return the frames that it completes, in order.

        Raises:
            DecodeError: a line is not JSON or not a watch event.
            StreamBrokenError: a line is longer than ``MAX_LINE``.
        """
        end = piece.rfind(b"\n")
        if end < 0:
            self._keep(piece)
            return []
        lines = piece[:end].split(b"\n")
        if self._pieces:
            self._pieces.append(lines[0])
            lines[0] = b"".join(self._pieces)
            self._pieces.clear()
            self._size = 0
        if end + 1 < len(piece):
            self._keep(piece[end + 1 :])
        return [_frame(line) for line in lines if line and not line.isspace()]

    def finish(self) -> None:
        """Record the clean end of the stream.

        Raises:
            StreamBrokenError: the stream ended in the middle of a line.
        """
        rest = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        if rest and not rest.isspace():
            msg = f"the watch ended in the middle of a frame, {len(rest)} bytes after its start"
            raise StreamBrokenError(msg)

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > MAX_LINE:
            raise StreamBrokenError(f"a watch frame is longer than {MAX_LINE} bytes")
        self._pieces.append(piece)


def _frame(line: bytes) -> WatchFrame:
    try:
        return _decode(line)
    except msgspec.DecodeError as problem:
        raise decode_error("WatchEvent", problem) from problem


class WatchStream:
    """An open watch.

    ``read`` may be cancelled, for example by an idle deadline, and called again without loss. It
    has no deadline; the watcher limits the time of silence.
    """

    __slots__ = ("_splitter", "_stream")

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._splitter = LineSplitter()

    async def read(self) -> list[WatchFrame]:
        """Return all received frames, at least one; empty at the clean end of the watch.

        Raises:
            StreamBrokenError: the connection broke, or ended inside a frame.
            DecodeError: a line is not a watch event.
        """
        while True:
            piece = await self._stream.read()
            if not piece:
                self._splitter.finish()
                return []
            if frames := self._splitter.feed(piece):
                return frames

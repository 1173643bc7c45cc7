"""Splits a byte stream into watch frames, whatever pieces it comes in.

A watch is a sequence of JSON documents, one on a line (Kubernetes API concepts, "Efficient
detection of changes"). The server escapes line feeds inside of strings, so a line feed always ends
a document, and splitting there never splits a character.
"""

from __future__ import annotations

import msgspec

from jobsetpy.client._errors import decode_error
from jobsetpy.client._transport import ByteStream
from jobsetpy.errors import StreamBrokenError

MAX_LINE = 64 * 1024 * 1024
"""Bytes of one frame; objects are smaller than etcd's request limit, which is 1.5 MiB."""


class WatchFrame(msgspec.Struct, frozen=True):
    """One line of a watch: ``type`` as sent and the object's undecoded JSON."""

    type: str
    object: msgspec.Raw


_decode = msgspec.json.Decoder(WatchFrame).decode


class LineSplitter:
    """Splits a stream into lines and decodes each; linear in the bytes fed, also for long lines."""

    __slots__ = ("_pieces", "_size")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[WatchFrame]:
        """The frames that this piece completes, in order.

        Raises:
            DecodeError: a line is no JSON or no watch event.
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
        """The stream ended cleanly.

        Raises:
            StreamBrokenError: in the middle of a line.
        """
        rest = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        if rest and not rest.isspace():
            msg = f"the watch ended in the middle of a frame, after {len(rest)} bytes of it"
            raise StreamBrokenError(msg)

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > MAX_LINE:
            msg = f"a watch frame is longer than {MAX_LINE} bytes"
            raise StreamBrokenError(msg)
        self._pieces.append(piece)


def _frame(line: bytes) -> WatchFrame:
    try:
        return _decode(line)
    except msgspec.DecodeError as problem:
        raise decode_error("WatchEvent", problem) from problem


class WatchStream:
    """A watch that is open.

    ``read`` may be cancelled, for example by an idle deadline, and called again: nothing is lost.
    It has no deadline of its own; how long silence is good only the watcher knows.
    """

    __slots__ = ("_splitter", "_stream")

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._splitter = LineSplitter()

    async def read(self) -> list[WatchFrame]:
        """All frames that have come, at least one; empty at the clean end of the watch.

        Raises:
            StreamBrokenError: the connection broke off, or ended inside of a frame.
            DecodeError: a line is no watch event.
        """
        while True:
            piece = await self._stream.read()
            if not piece:
                self._splitter.finish()
                return []
            frames = self._splitter.feed(piece)
            if frames:
                return frames

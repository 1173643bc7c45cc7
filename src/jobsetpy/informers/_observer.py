"""What informers tell about themselves, for metrics and logs.

The framework logs nothing here: the agent path must not import a logging library, and a library
should not decide where its words go. This module is on the agent's start-up path.
"""

from __future__ import annotations

from typing import Literal, Protocol

EndReason = Literal["eof", "expired", "error", "broken", "silence"]


class InformerObserver(Protocol):
    """Called synchronously from the event loop; must be quick and must not raise.

    ``kind`` is the name of the kind (``Pod``), fit to be a metric label. Those who care for little
    inherit from ``NullObserver``.
    """

    def on_list(self, kind: str, seconds: float, count: int) -> None:
        """A list of ``count`` objects completed, ``seconds`` after its first request."""

    def on_shard(self, kind: str, *, by_server: bool) -> None:
        """A list of a shard began; ``by_server``: without the objects of others."""

    def on_relist(self, kind: str, reason: str) -> None:
        """A list starts although one had completed, or had begun, before; ``reason`` in words."""

    def on_watch_open(self, kind: str, resource_version: str) -> None:
        """A watch is open and resumes after ``resource_version`` ("" for a streaming list)."""

    def on_watch_end(self, kind: str, reason: EndReason) -> None:
        """An open watch ended.

        ``eof``: the server ended it in order. ``expired``: its resourceVersion is too old.
        ``error``: the server sent an error in the stream. ``broken``: the connection broke or
        carried no JSON. ``silence``: nothing came within the idle deadline.
        """

    def on_silence(self, kind: str, seconds: float) -> None:
        """A watch was given up after ``seconds`` without a word.

        Normal once whenever a busy collection turns quiet: the watches that follow ask the server
        for a sign of life in time. Again and again means that something drops the streams.
        """

    def on_event(self, kind: str, type_: str) -> None:
        """A watch event of type ADDED, MODIFIED, DELETED or BOOKMARK was taken."""

    def on_stale_event(self, kind: str, type_: str) -> None:
        """An event at or before a resourceVersion that was seen already was dropped."""

    def on_failure(self, kind: str, error: Exception, retry_in_s: float) -> None:
        """A list or watch request failed; it is sent again in ``retry_in_s`` seconds."""

    def on_decode_error(self, kind: str, error: Exception, namespace: str, name: str) -> None:
        """An object does not fit the model and was left out; told once for each object.

        ``namespace`` and ``name`` are "" when not even those could be read.
        """

    def on_function_error(
        self, kind: str, function: str, error: Exception, namespace: str, name: str
    ) -> None:
        """A function of the program failed for an object; told when the object begins to fail.

        ``function`` is ``index 'NAME'`` or ``tally 'NAME'``, from which the object is left out, or
        ``transform``: then the cache lacks the object, or keeps its last good state.
        """


class NullObserver:
    """Observes nothing; a base for those who are interested in little."""

    __slots__ = ()

    def on_list(self, kind: str, seconds: float, count: int) -> None:
        """Nothing."""

    def on_shard(self, kind: str, *, by_server: bool) -> None:
        """Nothing."""

    def on_relist(self, kind: str, reason: str) -> None:
        """Nothing."""

    def on_watch_open(self, kind: str, resource_version: str) -> None:
        """Nothing."""

    def on_watch_end(self, kind: str, reason: EndReason) -> None:
        """Nothing."""

    def on_silence(self, kind: str, seconds: float) -> None:
        """Nothing."""

    def on_event(self, kind: str, type_: str) -> None:
        """Nothing."""

    def on_stale_event(self, kind: str, type_: str) -> None:
        """Nothing."""

    def on_failure(self, kind: str, error: Exception, retry_in_s: float) -> None:
        """Nothing."""

    def on_decode_error(self, kind: str, error: Exception, namespace: str, name: str) -> None:
        """Nothing."""

    def on_function_error(
        self, kind: str, function: str, error: Exception, namespace: str, name: str
    ) -> None:
        """Nothing."""

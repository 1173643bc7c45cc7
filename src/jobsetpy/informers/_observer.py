"""Observers of informers, for metrics and logs.

The framework logs nothing here: the agent's start-up path, which includes this module, must not
import a logging library, and a library should not decide where its logs go.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

EndReason = Literal["eof", "expired", "error", "broken", "silence"]


class InformerObserver(Protocol):
    """Callbacks of an informer.

    Called synchronously from the event loop; must be quick and must not raise. ``kind`` is the name
    of the kind (``Pod``), suitable as a metric label. Inherit from ``NullObserver`` to implement
    only some methods.
    """

    def on_list(self, kind: str, seconds: float, count: int) -> None:
        """A list of ``count`` objects completed, ``seconds`` after its first request."""

    def on_relist(self, kind: str, reason: str) -> None:
        """A list starts although one had completed or begun before; ``reason`` is a text."""

    def on_watch_open(self, kind: str, resource_version: str) -> None:
        """A watch is open and resumes after ``resource_version`` ("" for a streaming list)."""

    def on_watch_end(self, kind: str, reason: EndReason) -> None:
        """An open watch ended.

        ``eof``: the server ended it cleanly. ``expired``: its resourceVersion is too old.
        ``error``: the server sent an error in the stream. ``broken``: the connection broke or
        carried no JSON. ``silence``: no data was received within the idle deadline.
        """

    def on_silence(self, kind: str, seconds: float) -> None:
        """A watch was closed after ``seconds`` without data.

        Normal once whenever a busy collection becomes quiet: the watches that follow ask the server
        for a sign of life in time. If it is repeated, something on the network drops the streams.
        """

    def on_event(self, kind: str, type_: str) -> None:
        """A watch event of type ADDED, MODIFIED, DELETED or BOOKMARK was accepted."""

    def on_failure(self, kind: str, error: Exception, retry_in_s: float) -> None:
        """A list or watch request failed; it is sent again in ``retry_in_s`` seconds."""

    def on_decode_error(self, kind: str, error: Exception, namespace: str, name: str) -> None:
        """An object does not fit the model and was left out; reported once for each object.

        ``namespace`` and ``name`` are "" when not even those could be read.
        """

    def on_function_error(
        self, kind: str, function: str, error: Exception, namespace: str, name: str
    ) -> None:
        """A function of the program failed for an object; reported when the object begins to fail.

        ``function`` is ``index 'NAME'``, from which the object is left out, or
        ``transform``: then the object is missing from the cache, or keeps its last good state.
        """


class NullObserver:
    """Observer that ignores every call; a base class for partial observers."""

    __slots__ = ()

    def _ignore(self, *_: Any, **__: Any) -> None:
        """Nothing."""

    on_list = on_relist = on_watch_open = on_watch_end = on_silence = _ignore
    on_event = on_failure = on_decode_error = on_function_error = _ignore

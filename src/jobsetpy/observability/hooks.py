"""What connects the hooks of the client and the informers to metrics and log lines.

The protocols live in those packages, above this one; the classes here fit them by structure.
"""

from __future__ import annotations

from jobsetpy.observability import metrics
from jobsetpy.observability.logging import get_logger


class ClientMetrics:
    """Counts requests; implements ``client.RequestObserver``."""

    __slots__ = ()

    def on_response(self, verb: str, resource: str, status: int | None, seconds: float) -> None:
        """An HTTP exchange ended."""
        metrics.request(verb, resource, status, seconds)

    def on_throttled(self, seconds: float) -> None:
        """A request waited for the client's own rate limit."""
        metrics.throttled(seconds)


class InformerMetrics:
    """Counts and logs what informers go through; implements ``informers.InformerObserver``.

    Logged are: completed lists and relists (info), failures (warning), objects that cannot be
    decoded (error, once for each). Watches that end or fall silent are daily business.
    """

    __slots__ = ("_log",)

    def __init__(self) -> None:
        self._log = get_logger("informers")

    def on_list(self, kind: str, seconds: float, count: int) -> None:
        """A list completed."""
        metrics.informer_listed(kind, seconds)
        self._log.info("listed", kind=kind, count=count, seconds=round(seconds, 3))

    def on_relist(self, kind: str, reason: str) -> None:
        """A list starts although one had completed, or had begun, before."""
        metrics.informer_relist(kind)
        self._log.info("listing again", kind=kind, reason=reason)

    def on_watch_open(self, kind: str, resource_version: str) -> None:
        """A watch is open."""
        self._log.debug("watching", kind=kind, resource_version=resource_version)

    def on_watch_end(self, kind: str, reason: str) -> None:
        """A watch ended."""
        metrics.informer_watch_ended(kind, reason)
        self._log.debug("watch ended", kind=kind, reason=reason)

    def on_silence(self, kind: str, seconds: float) -> None:
        """A watch was given up because nothing came."""
        # Normal for a collection in which nothing happens; the server has no other sign of life.
        self._log.debug("watch is silent, opening another", kind=kind, seconds=round(seconds, 1))

    def on_event(self, kind: str, type_: str) -> None:
        """A watch event was taken."""
        metrics.informer_event(kind, type_)

    def on_stale_event(self, kind: str, type_: str) -> None:  # noqa: ARG002 - the hook's signature
        """A watch event had been seen already."""
        metrics.informer_stale_event(kind)

    def on_failure(self, kind: str, error: Exception, retry_in_s: float) -> None:
        """A list or watch request failed and will be sent again."""
        metrics.informer_failure(kind)
        self._log.warning(
            "list or watch failed, trying again",
            kind=kind,
            error=str(error),
            retry_in_s=round(retry_in_s, 3),
        )

    def on_decode_error(self, kind: str, error: Exception, namespace: str, name: str) -> None:
        """An object does not fit the model and was left out."""
        metrics.informer_decode_error(kind)
        self._log.error(
            "object does not fit the model and is left out of the cache",
            kind=kind,
            namespace=namespace,
            name=name,
            error=str(error),
        )

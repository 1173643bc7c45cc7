"""Decoding of the lines of a watch; nothing here raises for invalid content.

This module is on the agent's start-up path: standard library and msgspec only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from jobsetpy.client import WatchFrame
from jobsetpy.client._models import Bare, BareMetadata, decode_bare
from jobsetpy.errors import ApiError, DecodeError, ExpiredError, RetryableApiError
from jobsetpy.informers._events import Identified
from jobsetpy.informers._observer import InformerObserver

T = TypeVar("T")

REPORTED_LIMIT: Final = 10_000
"""Maximum number of undecodable objects that are remembered as reported."""
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
"""Annotation of the bookmark that ends a streaming list (KEP-3157)."""


UNDECODABLE: Final = (msgspec.MsgspecError, DecodeError, RecursionError)
"""Exceptions of decoding; the last for JSON that is nested too deeply, which users can write."""


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


_STATUS: Final = msgspec.json.Decoder(_Status)


def metadata_of(obj: Any) -> Identified:
    """Return the metadata of an object."""
    return cast("Identified", obj.metadata)


class FrameReader(Generic[T]):
    """Decoder of frames; reports each object that does not fit the model once.

    Args:
        decode: decodes an object from its JSON.
        kind: name of the kind, for the observer.
        observer: receives decode errors.
    """

    __slots__ = ("_decode", "_kind", "_observer", "_reported")

    def __init__(
        self, decode: Callable[[msgspec.Raw], T], kind: str, observer: InformerObserver
    ) -> None:
        self._decode = decode
        self._kind = kind
        self._observer = observer
        self._reported: set[tuple[str, str]] = set()

    def object(self, frame: WatchFrame) -> tuple[Identified | None, T | None, bool]:
        """Return metadata, object, and whether the object's content is known.

        For an object that does not fit the model, the object is ``None``, and possibly the metadata
        as well. If it was deleted, an object with its identity alone is returned, since a deletion
        must not be missed.
        """
        try:
            obj = self._decode(frame.object)
        except UNDECODABLE as error:
            meta = self._bare(frame)
            if meta is None:
                self._report(error, "", "")
                return None, None, False
            self._report(error, meta.namespace, meta.name)
            return meta, self._identity_only(meta) if frame.type == "DELETED" else None, False
        found = metadata_of(obj)
        if not found.name:
            self._report(DecodeError(self._kind, "$.metadata.name", "no name"), "", "")
            return None, None, False
        return found, obj, True

    def bookmark(self, frame: WatchFrame) -> tuple[str, bool]:
        """Return the resourceVersion, "" if missing, and whether it ends a streaming list."""
        meta = self._bare(frame)
        if meta is None:
            self._report(DecodeError("Bookmark", "$.metadata", "no metadata"), "", "")
            return "", False
        return meta.resource_version, (meta.annotations or {}).get(INITIAL_EVENTS_END) == "true"

    def error(self, frame: WatchFrame) -> ApiError:
        """Return the exception for an ERROR event; all but 410 are retryable."""
        try:
            status = _STATUS.decode(frame.object)
        except UNDECODABLE:
            status = _Status(message="an ERROR event that is no Status")
        kind = ExpiredError if status.code == 410 else RetryableApiError
        return kind(status.code, status.reason, status.message, verb="watch", target=self._kind)

    def unknown(self, frame: WatchFrame) -> None:
        """Report an event of an unknown type, which is otherwise ignored."""
        self._report(DecodeError("WatchEvent", "$.type", f"unknown type {frame.type!r}"), "", "")

    def _bare(self, frame: WatchFrame) -> BareMetadata | None:
        try:
            return decode_bare(frame.object).metadata
        except UNDECODABLE:
            return None

    def _identity_only(self, meta: BareMetadata) -> T | None:
        bare = Bare(msgspec.structs.replace(meta, annotations=None))
        try:
            return self._decode(msgspec.Raw(msgspec.json.encode(bare)))
        except UNDECODABLE:
            return None  # the model requires more than an identity

    def _report(self, error: Exception, namespace: str, name: str) -> None:
        if (namespace, name) in self._reported:
            return
        if len(self._reported) >= REPORTED_LIMIT:
            self._reported.clear()
        self._reported.add((namespace, name))
        self._observer.on_decode_error(self._kind, error, namespace, name)

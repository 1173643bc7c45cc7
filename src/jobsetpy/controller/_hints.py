"""Advice for errors of a reconciler whose own text does not say what to do."""

from __future__ import annotations

from typing import Final

import attrs

from jobsetpy.errors import NotFoundError, NotSyncedError

FINALIZERS: Final[set[str]] = set()
"""Names of the finalizers created by this program (``runtime.finalizer``)."""

_FROZEN: Final = (
    "objects of the cache are shared and cannot be changed: make a changed copy (runtime.evolve), "
    "and write with the client"
)
_NO_KIND: Final = (
    "the API server does not know this kind: is its CustomResourceDefinition installed?"
)
_NO_KIND_TEXTS: Final = ("could not find the requested resource", "404 page not found")
"""Responses of API servers for an unknown kind of a known group, and of an unknown group."""
_NOT_AWAITED: Final = "an `await` is missing in front of a call"


def hint(error: BaseException) -> str:
    """Return advice about an error; "" if its text is sufficient."""
    if isinstance(error, attrs.exceptions.FrozenInstanceError):
        return _FROZEN
    if isinstance(error, NotFoundError) and any(each in str(error) for each in _NO_KIND_TEXTS):
        return _NO_KIND
    if isinstance(error, AttributeError) and "'coroutine' object" in str(error):
        return _NOT_AWAITED
    if isinstance(error, NotSyncedError):
        return "take informers from manager.informer(...): the manager runs those, and no others"
    return ""

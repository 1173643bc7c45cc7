"""Finalizers: work that must be done before an object is removed."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from jobsetpy.api.meta import key_of
from jobsetpy.client import Client
from jobsetpy.controller._hints import FINALIZERS
from jobsetpy.errors import ConflictError, NotFoundError

T = TypeVar("T")

ATTEMPTS: Final = 5
"""Maximum number of attempts of a write that conflicts, before the whole reconcile is retried."""

_QUALIFIED: Final = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
    r"/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
)


class Finalizer:
    """One finalizer; created by :func:`finalizer`.

    Conflicts are handled: an object that has changed since the cache saw it is read again, and
    finalizers of other controllers are preserved. Only necessary changes are written.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        if not _QUALIFIED.fullmatch(name):
            msg = f"a finalizer is called DOMAIN/NAME, such as example.com/bucket, not {name!r}"
            raise ValueError(msg)
        self.name = name
        FINALIZERS.add(name)

    def __repr__(self) -> str:
        """Expression that creates it."""
        return f"finalizer({self.name!r})"

    def on(self, obj: Any) -> bool:
        """Return whether the object has the finalizer."""
        return self.name in obj.metadata.finalizers

    async def guard(self, client: Client, obj: T, clean_up: Callable[[T], Awaitable[Any]]) -> bool:
        """Keep the finalizer on a live object; clean up after a deleted one and remove it.

        For the beginning of a reconcile::

            if await FINALIZER.guard(self.client, bucket, self.delete_files):
                return rt.Result.done()

        A controller of ``controller_for`` needs ``deleting=True`` for it.

        Args:
            client: client that writes the object.
            obj: the object from the cache.
            clean_up: called if the object is being deleted and has the finalizer. It may be called
                again after a crash or failure, so it must tolerate what is already gone.

        Returns:
            True if the object is being deleted, or is gone: nothing is left to do for it.

        Raises:
            Exception: any exception of ``clean_up``; the finalizer stays.
        """
        current: T | None = obj
        meta: Any = obj.metadata  # type: ignore[attr-defined] # KubeObject
        if meta.deletion_timestamp is None:
            current = await self.ensure(client, obj)
            if current is None:
                return True
            if current.metadata.deletion_timestamp is None:  # type: ignore[attr-defined] # as above
                return False
        assert current is not None
        if self.on(current):
            await clean_up(current)
            await self.remove(client, current)
        return True

    async def ensure(self, client: Client, obj: T) -> T | None:
        """Return the object with the finalizer; ``None`` if it is gone.

        An object that is being deleted is returned unchanged: no finalizer can be added to it.
        """
        return await self._write(client, obj, present=True)

    async def remove(self, client: Client, obj: T) -> T | None:
        """Return the object without the finalizer; ``None`` if it is gone."""
        return await self._write(client, obj, present=False)

    async def _write(self, client: Client, obj: T, *, present: bool) -> T | None:
        current: Any = obj
        uid = current.metadata.uid
        for attempt in range(ATTEMPTS):
            meta = current.metadata
            deleted = meta.deletion_timestamp is not None
            if self.on(current) is present or (present and deleted):
                return current  # type: ignore[no-any-return]
            names = [name for name in meta.finalizers if name != self.name]
            body = {
                "finalizers": [*names, self.name] if present else names,
                "resourceVersion": meta.resource_version,
            }
            try:
                return await client.merge_patch(
                    type(obj), meta.namespace, meta.name, {"metadata": body}
                )
            except NotFoundError:
                return None
            except ConflictError:
                if attempt == ATTEMPTS - 1:
                    raise
            try:
                key = key_of(current)
                current = await client.get(type(obj), key.namespace, key.name)
            except NotFoundError:
                return None
            if current.metadata.uid != uid:
                return None  # a different object of that name
        raise AssertionError  # pragma: no cover - the last attempt returns or raises


def finalizer(name: str) -> Finalizer:
    """Return a finalizer of that name, ``DOMAIN/NAME``.

    Raises:
        ValueError: the API server would refuse the name.
    """
    return Finalizer(name)

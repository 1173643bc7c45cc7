"""Finalizers: work that must be done before an object is removed."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from jobsetpy.client import Client
from jobsetpy.controller._hints import FINALIZERS
from jobsetpy.errors import NotFoundError
from jobsetpy.runtime._writes import patch_current

T = TypeVar("T")

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
        if not _is_deleted(obj):
            current = await self.ensure(client, obj)
            if current is None:
                return True
            if not _is_deleted(current):
                return False
        assert current is not None, "an object that is deleted is the one that was given"
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
        def change(current: Any) -> dict[str, Any] | None:
            if self.on(current) is present or (present and _is_deleted(current)):
                return None
            names = [name for name in current.metadata.finalizers if name != self.name]
            return {"metadata": {"finalizers": [*names, self.name] if present else names}}

        try:
            return await patch_current(client, obj, change)
        except NotFoundError:
            return None


def _is_deleted(obj: Any) -> bool:
    return obj.metadata.deletion_timestamp is not None


def finalizer(name: str) -> Finalizer:
    """Return a finalizer of that name, ``DOMAIN/NAME``.

    Raises:
        ValueError: the API server would refuse the name.
    """
    return Finalizer(name)

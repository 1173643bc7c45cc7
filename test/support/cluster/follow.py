"""A shared informer that passes each change of an object to a plain function."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import attrs

from jobsetpy import aio
from jobsetpy.client import Client
from jobsetpy.informers import SharedInformer, WatchOptions

Note = Callable[[Any, bool], None]
"""Called with each new state of an object, and whether it was deleted."""


@attrs.frozen
class _Notifier:
    note: Note

    def on_add(self, obj: Any, *, initial: bool) -> None:
        self.note(obj, False)

    def on_update(self, old: Any, new: Any) -> None:
        self.note(new, False)

    def on_delete(self, obj: Any, *, final_state_known: bool) -> None:
        self.note(obj, True)


@contextlib.asynccontextmanager
async def following(
    client: Client, cls: type, note: Note, **scope: str
) -> AsyncIterator[SharedInformer[Any]]:
    """Within the block ``note`` is called for every object in scope, before it begins for existing ones."""
    informer: SharedInformer[Any] = SharedInformer(
        client, cls, WatchOptions(backoff_cap_s=2.0, **scope)
    )
    informer.add_handler(_Notifier(note))
    async with aio.supervise() as tasks:
        tasks.start(informer.run(), name=f"following {cls.__name__}")
        await informer.wait_for_sync()
        yield informer

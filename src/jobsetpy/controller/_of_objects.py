"""Controller of one kind whose reconciler is a function of an object."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Generic, TypeVar

import attrs

from jobsetpy.api.meta import KubeObject
from jobsetpy.api.reconcile import Request, Result
from jobsetpy.controller._controller import Controller, check_async
from jobsetpy.controller._handlers import enqueue_owner, enqueue_self
from jobsetpy.controller._hints import FINALIZERS
from jobsetpy.controller._watch import Watch
from jobsetpy.controller.predicates import Predicate, generation_changed
from jobsetpy.informers import SharedInformer, Store
from jobsetpy.observability.logging import get_logger

T = TypeVar("T", bound=KubeObject)


def controller_for(
    objects: SharedInformer[T],
    reconcile: Callable[[T], Awaitable[Result]],
    *,
    name: str,
    owns: Iterable[SharedInformer[Any]] = (),
    watches: Iterable[Watch[Any]] = (),
    when: Predicate = generation_changed,
    deleting: bool = False,
    **options: Any,
) -> Controller:
    """Return a controller for one kind and the objects that it owns: the usual case.

    For ``manager.add(rt.controller_for(informer, reconcile, name="widgets", owns=[jobs]))``.
    ``reconcile`` is called with the cached object, under the same conditions as a
    :class:`Reconciler`: without need, late, and again after a failure.

    Args:
        objects: informer of the kind.
        reconcile: function to call for an object. It is not called for one that is gone.
        name: label of metrics and logs; one word such as ``jobset``.
        owns: informers of owned objects (``ownerReferences`` with ``controller``): a change of
            one triggers a reconcile of its owner.
        watches: further triggers of a reconcile.
        when: predicate for changes of the objects themselves.
        deleting: also call it for objects that are being deleted: required with a finalizer, not
            for objects that are left to the garbage collector.
        options: other arguments of :class:`Controller`, such as ``workers``.

    Raises:
        TypeError: ``reconcile`` is not an ``async def``.
    """
    check_async(reconcile, getattr(reconcile, "__qualname__", repr(reconcile)))
    return Controller(
        name=name,
        reconciler=_OfObject(objects.store, reconcile, deleting, name),
        watches=(
            Watch(objects, enqueue_self, when=when),
            *(Watch(each, enqueue_owner(objects.cls)) for each in owns),
            *watches,
        ),
        **options,
    )


@attrs.frozen
class _OfObject(Generic[T]):
    """Calls a function for an object that exists."""

    store: Store[T]
    function: Callable[[T], Awaitable[Result]]
    deleting: bool
    name: str

    @property
    def __wrapped__(self) -> Callable[[T], Awaitable[Result]]:
        """The called function, for messages."""
        return self.function

    async def reconcile(self, request: Request) -> Result:
        found = self.store.get(request.key)
        if found is None:
            return Result.done()
        goes = getattr(found.metadata, "deletion_timestamp", None) is not None
        if goes and not self.deleting:
            self._report_finalizers(found)
            return Result.done()
        return await self.function(found)

    def _report_finalizers(self, obj: T) -> None:
        """Log a finalizer of this program that nothing will remove."""
        if held := FINALIZERS & set(getattr(obj.metadata, "finalizers", ())):
            get_logger("controller").warning(
                "an object that is being deleted has a finalizer of this program, and is not given "
                "to reconcile: say controller_for(..., deleting=True) and call Finalizer.guard",
                controller=self.name,
                finalizers=sorted(held),
            )

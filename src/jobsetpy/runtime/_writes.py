"""Common writes of controllers: of a status, and of objects that belong to another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

import attrs
import msgspec

from jobsetpy.api._wire import to_json
from jobsetpy.api.meta import KubeObject, key_of, owner_reference_to
from jobsetpy.client import Client, HttpRequest
from jobsetpy.errors import ConflictError, NotFoundError

T = TypeVar("T")

ATTEMPTS: Final = 5
"""Maximum number of attempts of a write that conflicts, before the whole reconcile is retried."""

_PAGE: Final = 500


async def list_objects(
    client: Client,
    cls: type[T],
    namespace: str = "",
    *,
    label_selector: str = "",
    field_selector: str = "",
    page_limit: int = _PAGE,
) -> AsyncIterator[T]:
    """List objects, page by page: ``async for pod in rt.list_objects(client, rt.Pod)``.

    Reads from the API server, for objects that no informer caches. Objects that do not fit the
    class are left out.

    Raises:
        ExpiredError: the list took too long and its version expired: start again.
    """
    token = ""
    while True:
        page = await client.list_page(
            cls,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            limit=page_limit,
            continue_token=token,
        )
        for item in page.items:
            yield item
        token = page.continue_token
        if not token:
            return


def difference(old: Any, new: Any) -> Any:
    """Return the JSON merge patch (RFC 7386) from ``old`` to ``new``; {} if they are equal.

    Both are JSON data. Lists are replaced as a whole.
    """
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return {} if old == new else new
    patch: dict[str, Any] = dict.fromkeys(old.keys() - new.keys())
    for name, value in new.items():
        if name not in old:
            patch[name] = value
        elif value != old[name]:
            patch[name] = difference(old[name], value)
    return patch


async def patch_current(
    client: Client,
    obj: T,
    change: Callable[[Any], Mapping[str, Any] | None],
    subresource: str | None = None,
) -> T:
    """Patch an object as it is now; return it as stored in the server.

    If it has changed since it was read, it is read again and the change recomputed, a few times.

    Args:
        client: client that reads and writes.
        obj: the object from the cache.
        change: returns the merge patch for the object's current state; ``None`` for no write, and
            the object is returned unchanged.
        subresource: subresource to patch instead of the object.

    Raises:
        NotFoundError: the object is gone.
        ConflictError: it changes faster than it can be written.
    """
    current: Any = obj
    for attempt in range(ATTEMPTS):
        patch = change(current)
        if patch is None:
            return current  # type: ignore[no-any-return]
        key, meta = key_of(current), current.metadata
        metadata = {**patch.get("metadata", {}), "resourceVersion": meta.resource_version}
        try:
            return await client.merge_patch(
                type(obj),
                key.namespace,
                key.name,
                {**patch, "metadata": metadata},
                subresource=subresource,
            )
        except ConflictError:
            if attempt == ATTEMPTS - 1:
                raise
        current = await client.get(type(obj), key.namespace, key.name)
        if current.metadata.uid != meta.uid:
            raise NotFoundError(404, "NotFound", f"{key} is another object now", verb="patch")
    raise AssertionError  # pragma: no cover - the last attempt returns or raises


async def patch_status(client: Client, obj: T, status: Any) -> T:
    """Set the object's status to ``status``; write only the difference, and nothing without one.

    If the object has changed since it was read, it is read again and the difference recomputed, a
    few times.

    Args:
        client: client that writes the status.
        obj: the object from the cache.
        status: an object of the status' class, or a function that derives one from the object's
            current state (``lambda job: attrs.evolve(job.status, ready=3)``); prefer the function
            if others write parts of the status as well. Fields of the status that the class does
            not know are preserved.

    Returns:
        The object as stored in the server; ``obj`` itself if nothing was written.

    Raises:
        NotFoundError: the object is gone.
        ConflictError: it changes faster than it can be written.
    """
    make: Callable[[Any], Any] = status if callable(status) else lambda _: status

    def change(current: Any) -> dict[str, Any] | None:
        patch = difference(_plain(current.status), _plain(make(current)))
        return {"status": patch} if patch else None

    return await patch_current(client, obj, change, "status")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return value
    return to_json(value)


class Outcome(StrEnum):
    """Action of ``create_or_apply``."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@attrs.frozen
class Applied(Generic[T]):
    """Result of ``create_or_apply``.

    Attributes:
        obj: the object as stored in the server.
        outcome: the action.
        drift: for an object that existed, paths of the fields that differed from the desired
            state, such as ``spec.replicas``.
    """

    obj: T
    outcome: Outcome
    drift: tuple[str, ...] = ()


async def create_or_apply(
    client: Client,
    cls: type[T],
    namespace: str,
    name: str,
    body: Mapping[str, Any],
    *,
    owner: str,
    controller: KubeObject | None = None,
) -> Applied[T]:
    """Create or update an object to match ``body`` by server-side apply; no write if it matches.

    The object is read first, so that changes made by others can be reported. Fields that an
    earlier call set and this one omits are removed; fields of others are preserved.

    Args:
        client: client that reads and writes the object.
        cls: class of the result; the comparison uses the whole JSON.
        namespace: "" for cluster-scoped kinds.
        name: name of the object.
        body: desired labels, annotations, spec, data. Names are filled in.
        owner: the field manager, such as the controller's name.
        controller: owner of the object: the object gets a controller's owner reference, and is
            garbage collected with its owner.

    Raises:
        ConflictError: another controller owns it.
    """
    wanted = _complete(cls, namespace, name, body, controller)
    live = await _read(client, cls, namespace, name)
    if live is None:
        made = await client.apply(cls, namespace, name, wanted, owner=owner)
        return Applied(made, Outcome.CREATED)
    if controller is not None:
        _check_owner(live, controller, f"{cls.__name__} {namespace}/{name}")
    drift = tuple(_drift(wanted, live, ""))
    if not drift and any(_entries(live, owner)) and _owned(live, owner) <= {*_chains(wanted, ())}:
        return Applied(msgspec.json.decode(msgspec.json.encode(live), type=cls), Outcome.UNCHANGED)
    made = await client.apply(cls, namespace, name, wanted, owner=owner)
    same = made.metadata.resource_version == live["metadata"]["resourceVersion"]  # type: ignore[attr-defined] # KubeObject
    return Applied(made, Outcome.UNCHANGED if same else Outcome.UPDATED, drift)


def _complete(
    cls: Any,
    namespace: str,
    name: str,
    body: Mapping[str, Any],
    controller: KubeObject | None,
) -> dict[str, Any]:
    meta: dict[str, Any] = {**body.get("metadata", {}), "name": name}
    if cls.RESOURCE.namespaced:
        meta["namespace"] = namespace
    if controller is not None:
        theirs = controller.metadata.namespace
        if theirs and theirs != namespace:
            raise ValueError(
                f"{cls.RESOURCE.kind} {name} cannot belong to {key_of(controller)}: an owner is in "
                "the same namespace, or in none"
            )
        meta["ownerReferences"] = [owner_reference_to(controller)]
    info = cls.RESOURCE
    return {**body, "apiVersion": info.api_version, "kind": info.kind, "metadata": meta}


async def _read(client: Client, cls: Any, namespace: str, name: str) -> dict[str, Any] | None:
    path = cls.RESOURCE.path(namespace, name)
    try:
        answer = await client.raw(HttpRequest(method="GET", path=path))
    except NotFoundError:
        return None
    live: dict[str, Any] = msgspec.json.decode(answer.body)
    return live


def _check_owner(live: Mapping[str, Any], controller: KubeObject, what: str) -> None:
    for reference in live["metadata"].get("ownerReferences") or ():
        if reference.get("controller") and reference["uid"] != controller.metadata.uid:
            msg = f"{what} belongs to {reference['kind']} {reference['name']} already"
            raise ConflictError(409, "AlreadyOwned", msg, verb="apply")


def _drift(wanted: Any, live: Any, path: str) -> Iterator[str]:
    """Yield the paths where ``live`` differs from ``wanted``; additional fields do not count."""
    if isinstance(wanted, Mapping) and isinstance(live, Mapping):
        for name, value in wanted.items():
            below = f"{path}.{name}" if path else name
            if name in live:
                yield from _drift(value, live[name], below)
            elif value not in (None, {}, []):
                yield below
    elif _is_list(wanted) and _is_list(live) and len(wanted) == len(live):
        for number, (value, there) in enumerate(zip(wanted, live, strict=True)):
            yield from _drift(value, there, f"{path}[{number}]")
    elif wanted != live:
        yield path


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _entries(live: Mapping[str, Any], owner: str) -> Iterator[Mapping[str, Any]]:
    for entry in live["metadata"].get("managedFields") or ():
        if entry.get("manager") == owner and entry.get("operation") == "Apply":
            yield entry


def _owned(live: Mapping[str, Any], owner: str) -> set[tuple[str, ...]]:
    """Names of the fields that ``owner`` has applied; items of lists are not distinguished."""
    return {
        chain
        for entry in _entries(live, owner)
        if not entry.get("subresource")
        for chain in _field_chains(entry.get("fieldsV1") or {}, ())
    }


def _field_chains(tree: Mapping[str, Any], at: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for part, below in tree.items():
        here = (*at, part[2:]) if part.startswith("f:") else at
        if here:
            yield here
        yield from _field_chains(below or {}, here)


def _chains(value: Any, at: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(value, Mapping):
        for name, below in value.items():
            yield (*at, name)
            yield from _chains(below, (*at, name))
    elif _is_list(value):
        for below in value:
            yield from _chains(below, at)

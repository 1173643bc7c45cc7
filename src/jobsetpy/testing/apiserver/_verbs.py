"""Execution of one request to a resource, between the HTTP server and the registry."""

from __future__ import annotations

from typing import Any

import attrs
import msgspec

from jobsetpy.api.meta import ObjectKey
from jobsetpy.api.structural_schema import required
from jobsetpy.testing.apiserver import _answers as answers
from jobsetpy.testing.apiserver import _http, _patches
from jobsetpy.testing.apiserver._admission import Admission, Review
from jobsetpy.testing.apiserver._http import Route
from jobsetpy.testing.apiserver._kinds import Json
from jobsetpy.testing.apiserver._listing import ListOptions, list_page
from jobsetpy.testing.apiserver._registry import Registry
from jobsetpy.testing.apiserver._requests import Request
from jobsetpy.testing.apiserver._storage import Collection, Storage, Version
from jobsetpy.testing.apiserver._writes import WriteOptions

Answer = tuple[int, bytes]

_CHANGES = {
    _http.MERGE_PATCH: _patches.merge_patch,
    _http.JSON_PATCH: _patches.json_patch,
    _http.STRATEGIC_PATCH: _patches.strategic_merge_patch,
}


@attrs.frozen(eq=False)
class Call:
    """Request to a resource; a trial stores nothing and skips validation."""

    request: Request
    route: Route
    collection: Collection
    trial: bool = False

    def options(self) -> WriteOptions:
        """Return the parameters of a write.

        Raises:
            StatusError: 422, for an apply without a manager.
        """
        query = self.request.query
        manager = query.get("fieldManager", "")
        if self.request.verb == "apply" and not manager:
            missing = required("fieldManager", "is required for apply patch")
            raise answers.invalid_options("PatchOptions", [missing])
        return WriteOptions(
            self.route.subresource,
            manager,
            dry_run=self.trial or query.get("dryRun") == "All",
            validate=not self.trial,
        )

    def list_options(self) -> ListOptions:
        """Return the parameters of LIST and WATCH."""
        watch = self.request.verb == "watch"
        return _http.list_options(self.collection.kind, self.request.query, watch=watch)

    def body(self) -> Json:
        """Return the object of a create or PUT."""
        request = self.request
        return _http.read_object(request.body, request.content_type, self.collection.kind)

    def patch(self) -> tuple[str, Any]:
        """Return the media type of a patch, and its content."""
        request = self.request
        return _http.read_patch(request.body, request.content_type, self.collection.kind)

    def answer(self, obj: Json, created: bool = False) -> Answer:
        """Return the response with an object."""
        return 201 if created else 200, Version(self.collection.kind, obj).raw


def resolve(storage: Storage, route: Route) -> Collection:
    """Return the collection of a route.

    Raises:
        StatusError: 404.
    """
    collection = storage.find(route.group, route.plural)
    if collection is None or collection.kind.info.version != route.version:
        raise answers.no_such_path()
    info = collection.kind.info
    misplaced = route.name and not route.namespace if info.namespaced else route.namespace
    known = {"", "status"} if collection.kind.status else {""}
    if info.kind == "Pod":
        known |= {"binding", "eviction"}
    if misplaced or route.subresource not in known:
        raise answers.no_such_path()
    return collection


def perform(registry: Registry, call: Call) -> Answer:
    """Execute any verb except watch; return the status code and the body of the response.

    Raises:
        StatusError: the request fails.
    """
    match call.request.verb:
        case "get":
            return _get(call)
        case "list":
            options = call.list_options()
            return 200, list_page(registry.storage, call.collection, call.route.namespace, options)
        case "delete":
            return _delete(registry, call)
        case _:
            return _write(registry, call)


def _write(registry: Registry, call: Call) -> Answer:
    collection, key, options = call.collection, call.route.key, call.options()
    match call.request.verb:
        case "create":
            return _create(registry, call, options)
        case "update":
            return call.answer(registry.replace(collection, key, call.body(), options))
        case "apply":
            _, applied = call.patch()
            force = bool(_http.truth(call.request.query, "force"))
            return call.answer(*registry.apply(collection, key, applied, options, force=force))
        case _:
            media, patch = call.patch()
            change = _CHANGES[media]
            done = registry.patch(collection, key, lambda obj: change(obj, patch), options)
            return call.answer(done)


_OPERATIONS = {
    "create": "CREATE",
    "update": "UPDATE",
    "patch": "UPDATE",
    "apply": "UPDATE",
    "delete": "DELETE",
}
_TRIES = 5


async def perform_admitted(registry: Registry, admission: Admission, call: Call) -> Answer:
    """Execute like ``perform``, after calling the matching webhooks.

    Raises:
        StatusError: the request fails.
    """
    request, route, collection = call.request, call.route, call.collection
    operation, subresource = _OPERATIONS.get(request.verb, ""), route.subresource
    if operation == "UPDATE" and collection.get(route.key) is None and not subresource:
        operation = "CREATE"  # an apply that creates the object
    if subresource in {"binding", "eviction"} or not (
        operation and admission.concerns(collection, operation, subresource)
    ):
        return perform(registry, call)
    for _ in range(_TRIES):
        old = collection.get(route.key) if operation != "CREATE" else None
        if operation == "DELETE" and old is None:
            break
        wanted, key = None, route.key
        if operation != "DELETE":
            trial = attrs.evolve(call, trial=True)
            wanted = msgspec.json.decode(perform(registry, trial)[1])
            key = ObjectKey(wanted["metadata"].get("namespace", ""), wanted["metadata"]["name"])
        dry, who = request.query.get("dryRun") == "All", request.target.user_agent
        asked = Review(collection, key, operation, subresource, wanted, old, dry, who)
        changed = await admission.mutated(asked)
        await admission.validated(asked, changed)
        if collection.get(route.key) is not old and operation != "CREATE":
            continue  # another writer was faster: repeat with the current object
        if changed == wanted:
            break
        assert changed is not None, "a deletion has no object to store"
        return _store_mutated(registry, call, key, changed)
    return perform(registry, call)


def _store_mutated(registry: Registry, call: Call, key: ObjectKey, changed: Json) -> Answer:
    """Store an object as changed by the webhooks."""
    collection, options, created = call.collection, call.options(), False
    if call.request.verb == "apply":
        force = bool(_http.truth(call.request.query, "force"))
        done, created = registry.apply(collection, key, call.patch()[1], options, force=force)
        if options.dry_run:
            return call.answer(changed, created)
        changed["metadata"]["uid"] = done["metadata"]["uid"]
        changed["metadata"].pop("resourceVersion", None)
    elif collection.get(key) is None:
        return call.answer(registry.create(collection, key.namespace, changed, options), True)
    return call.answer(registry.patch(collection, key, lambda _: changed, options), created)


def _get(call: Call) -> Answer:
    found = call.collection.objects.get(call.route.key)
    if found is None:
        raise answers.not_found(call.collection.kind.info, call.route.name)
    return 200, found.raw


def _create(registry: Registry, call: Call, options: WriteOptions) -> Answer:
    route, collection, body = call.route, call.collection, call.body()
    if not route.subresource:
        return call.answer(registry.create(collection, route.namespace, body, options), True)
    if route.subresource == "status":
        raise answers.method_not_allowed()
    registry.pod_action(collection, route.key, route.subresource, body)
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return 201, msgspec.json.encode({**status, "code": 201})


def _delete(registry: Registry, call: Call) -> Answer:
    options = _http.delete_options(call.request.query, call.request.body)
    obj = registry.delete(call.collection, call.route.key, options)
    return call.answer(obj)

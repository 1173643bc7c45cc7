"""Execution of one request to a resource, between the HTTP server and the registry."""

from __future__ import annotations

import attrs
import msgspec

from jobsetpy.api.meta import ObjectKey
from jobsetpy.testing.apiserver import _answers as answers
from jobsetpy.testing.apiserver import _discovery, _http, _patches
from jobsetpy.testing.apiserver._admission import Admission, Review
from jobsetpy.testing.apiserver._http import Query, Route
from jobsetpy.testing.apiserver._kinds import Json
from jobsetpy.testing.apiserver._listing import list_page, list_version
from jobsetpy.testing.apiserver._registry import Registry, status_of_delete
from jobsetpy.testing.apiserver._storage import Collection, Storage, Version
from jobsetpy.testing.apiserver._writes import WriteOptions


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """Request to a resource, without HTTP."""

    verb: str
    route: Route
    query: Query
    content_type: str
    user_agent: str
    body: bytes
    trial: bool = False

    def options(self, *, apply: bool) -> WriteOptions:
        """Return the parameters of a write; a trial stores nothing and skips validation."""
        made = _http.write_options(self.query, self.user_agent, self.route.subresource, apply=apply)
        return attrs.evolve(made, dry_run=True, validate=False) if self.trial else made


Answer = tuple[int, bytes]


def resolve(storage: Storage, route: Route) -> Collection:
    """Return the collection of a route.

    Raises:
        StatusError: 404.
    """
    if (route.group, route.plural, route.name) == ("", "bindings", "") and route.namespace:
        pods = storage.find("", "pods")
        assert pods is not None
        return pods
    collection = storage.find(route.group, route.plural)
    if collection is None or collection.kind.info.version != route.version:
        if _discovery.knows_group(storage, route.group, route.version):
            raise answers.no_such_path()
        raise answers.page_not_found()
    info = collection.kind.info
    misplaced = route.name and not route.namespace if info.namespaced else route.namespace
    known = {"", "status"} if collection.kind.status else {""}
    if info.kind == "Pod":
        known |= {"binding", "eviction"}
    if misplaced or route.subresource not in known:
        raise answers.no_such_path()
    return collection


def perform(storage: Storage, registry: Registry, collection: Collection, call: Call) -> Answer:
    """Execute any verb except watch; return the status code and the body of the response.

    Raises:
        StatusError: the request fails.
    """
    route, query = call.route, call.query
    match call.verb:
        case "get":
            return _get(storage, collection, call)
        case "list":
            options = _http.list_options(collection.kind, query, watch=False)
            return 200, list_page(storage, collection, route.namespace, options)
        case "delete":
            return _delete(registry, collection, call)
        case "deletecollection":
            return _delete_all(storage, registry, collection, call)
        case "create":
            return _create(registry, collection, call)
        case "update":
            return _update(registry, collection, call)
        case "apply":
            return _apply(registry, collection, call)
        case _:
            return _patch(registry, collection, call)


_OPERATIONS = {
    "create": "CREATE",
    "update": "UPDATE",
    "patch": "UPDATE",
    "apply": "UPDATE",
    "delete": "DELETE",
}
_TRIES = 5


async def perform_admitted(
    storage: Storage, registry: Registry, admission: Admission, collection: Collection, call: Call
) -> Answer:
    """Execute like ``perform``, after calling the matching webhooks.

    Raises:
        StatusError: the request fails.
    """
    operation, route = _OPERATIONS.get(call.verb, ""), call.route
    subresource = route.subresource
    if operation == "UPDATE" and collection.get(route.key) is None and not subresource:
        operation = "CREATE"  # an apply, or a PUT, that creates the object
    if subresource in {"binding", "eviction"} or not (
        operation and admission.concerns(collection, operation, subresource)
    ):
        return perform(storage, registry, collection, call)
    for _ in range(_TRIES):
        old = collection.get(route.key) if operation != "CREATE" else None
        if operation == "DELETE" and old is None:
            break
        wanted, key = None, route.key
        if operation != "DELETE":
            trial = msgspec.structs.replace(call, trial=True)
            wanted = msgspec.json.decode(perform(storage, registry, collection, trial)[1])
            key = ObjectKey(wanted["metadata"].get("namespace", ""), wanted["metadata"]["name"])
        dry, who = call.query.get("dryRun") == "All", call.user_agent
        asked = Review(collection, key, operation, subresource, wanted, old, dry, who)
        changed = await admission.mutated(asked)
        await admission.validated(asked, changed)
        if collection.get(route.key) is not old and operation != "CREATE":
            continue  # another writer was faster: repeat with the current object
        if changed == wanted:
            return perform(storage, registry, collection, call)
        assert changed is not None
        return _store_mutated(registry, collection, call, key, changed)
    return perform(storage, registry, collection, call)


def _store_mutated(
    registry: Registry, collection: Collection, call: Call, key: ObjectKey, changed: Json
) -> Answer:
    """Store an object as changed by the webhooks."""
    options = call.options(apply=call.verb == "apply")
    if collection.get(key) is None and call.verb != "apply":
        return 201, _encode(
            collection, registry.create(collection, key.namespace, changed, options)
        )
    if call.verb == "apply":
        body = _http.read_patch(call.body, call.content_type, collection.kind)[1]
        force = bool(_http.truth(call.query, "force"))
        done, created = registry.apply(collection, key, body, options, force=force)
        if options.dry_run:
            return 201 if created else 200, _encode(collection, changed)
        changed["metadata"]["uid"] = done["metadata"]["uid"]
        changed["metadata"].pop("resourceVersion", None)
        done = registry.patch(collection, key, lambda _: changed, options)
        return 201 if created else 200, _encode(collection, done)
    return 200, _encode(collection, registry.patch(collection, key, lambda _: changed, options))


def _get(storage: Storage, collection: Collection, call: Call) -> Answer:
    asked = list_version(call.query.get("resourceVersion", ""))
    if asked > storage.version:
        raise answers.too_large_version(asked, storage.version)
    found = collection.objects.get(call.route.key)
    if found is None:
        raise answers.not_found(collection.kind.info, call.route.name)
    return 200, found.raw


def _create(registry: Registry, collection: Collection, call: Call) -> Answer:
    route = call.route
    options = call.options(apply=False)
    body = _http.read_object(call.body, call.content_type, collection.kind)
    if route.plural == "bindings":  # of the pod named in the body
        name = (body.get("metadata") or {}).get("name") or ""
        route = attrs.evolve(route, plural="pods", name=name, subresource="binding")
    if not route.subresource:
        return 201, _encode(collection, registry.create(collection, route.namespace, body, options))
    if route.subresource == "status":
        raise answers.method_not_allowed()
    registry.pod_action(collection, route.key, route.subresource, body, options)
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return 201, msgspec.json.encode({**status, "code": 201})


def _update(registry: Registry, collection: Collection, call: Call) -> Answer:
    route = call.route
    options = call.options(apply=False)
    body = _http.read_object(call.body, call.content_type, collection.kind)
    done, created = registry.replace(collection, route.key, body, options)
    return 201 if created else 200, _encode(collection, done)


def _apply(registry: Registry, collection: Collection, call: Call) -> Answer:
    route = call.route
    options = call.options(apply=True)
    _, body = _http.read_patch(call.body, call.content_type, collection.kind)
    force = bool(_http.truth(call.query, "force"))
    done, created = registry.apply(collection, route.key, body, options, force=force)
    return 201 if created else 200, _encode(collection, done)


def _patch(registry: Registry, collection: Collection, call: Call) -> Answer:
    route = call.route
    options = call.options(apply=False)
    media, patch = _http.read_patch(call.body, call.content_type, collection.kind)
    change = {
        _http.MERGE_PATCH: _patches.merge_patch,
        _http.JSON_PATCH: _patches.json_patch,
        _http.STRATEGIC_PATCH: _patches.strategic_merge_patch,
    }[media]
    done = registry.patch(collection, route.key, lambda obj: change(obj, patch), options)
    return 200, _encode(collection, done)


def _delete(registry: Registry, collection: Collection, call: Call) -> Answer:
    options = _http.delete_options(call.query, call.body)
    obj, gone = registry.delete(collection, call.route.key, options)
    if gone and not collection.kind.returns_deleted:
        return 200, msgspec.json.encode(status_of_delete(collection.kind, obj))
    return 200, _encode(collection, obj)


def _delete_all(storage: Storage, registry: Registry, collection: Collection, call: Call) -> Answer:
    namespace = call.route.namespace
    options = _http.delete_options(call.query, call.body)
    chosen = _http.list_options(collection.kind, call.query, watch=False)
    listed = list_page(storage, collection, namespace, chosen)
    for key, state in tuple(collection.objects.items()):
        if (not namespace or key.namespace == namespace) and chosen.matches(state.obj):
            registry.delete(collection, key, options)
    return 200, listed


def _encode(collection: Collection, obj: Json) -> bytes:
    return Version(collection.kind, obj).raw

"""One request to a resource, carried out: everything between the HTTP server and the registry."""

from __future__ import annotations

import attrs
import msgspec

from jobsetpy.testing import _answers as answers
from jobsetpy.testing import _discovery, _http, _patches
from jobsetpy.testing._http import Query, Route
from jobsetpy.testing._kinds import Json
from jobsetpy.testing._listing import list_page, list_version
from jobsetpy.testing._registry import Registry, status_of_delete
from jobsetpy.testing._storage import Collection, Storage, Version


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a resource, without HTTP."""

    verb: str
    route: Route
    query: Query
    content_type: str
    user_agent: str
    body: bytes


Answer = tuple[int, bytes]


def resolve(storage: Storage, route: Route) -> Collection:
    """The collection a route is about.

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
    """Carry out any verb but watch; the status code and the body of the answer.

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
    options = _http.write_options(call.query, call.user_agent, route.subresource, apply=False)
    body = _http.read_object(call.body, call.content_type, collection.kind)
    if route.plural == "bindings":  # of a pod that the body names
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
    options = _http.write_options(call.query, call.user_agent, route.subresource, apply=False)
    body = _http.read_object(call.body, call.content_type, collection.kind)
    done, created = registry.replace(collection, route.key, body, options)
    return 201 if created else 200, _encode(collection, done)


def _apply(registry: Registry, collection: Collection, call: Call) -> Answer:
    route = call.route
    options = _http.write_options(call.query, call.user_agent, route.subresource, apply=True)
    _, body = _http.read_patch(call.body, call.content_type, collection.kind)
    force = bool(_http.truth(call.query, "force"))
    done, created = registry.apply(collection, route.key, body, options, force=force)
    return 201 if created else 200, _encode(collection, done)


def _patch(registry: Registry, collection: Collection, call: Call) -> Answer:
    route = call.route
    options = _http.write_options(call.query, call.user_agent, route.subresource, apply=False)
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

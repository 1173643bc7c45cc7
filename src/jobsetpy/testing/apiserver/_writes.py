"""Create, replace, patch and apply, with the API server's rules: conflicts, names, ownership.

Sources: Kubernetes API conventions and API concepts (resource versions, generated names); details
follow a real server's responses.
"""

from __future__ import annotations

import copy
import json
import re
import secrets
import uuid
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import attrs

from jobsetpy.aio import Clock
from jobsetpy.api.meta import ObjectKey
from jobsetpy.api.structural_schema import bad_value, forbidden, required
from jobsetpy.api.timestamps import seconds_text
from jobsetpy.testing.apiserver import _answers as answers
from jobsetpy.testing.apiserver import _fields, _validation
from jobsetpy.testing.apiserver._kinds import NAMESPACES, Json, Kind, prepare_create, prepare_update
from jobsetpy.testing.apiserver._storage import Collection, Storage

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


@attrs.frozen
class WriteOptions:
    """Options of a create, PUT or PATCH.

    ``validate`` is for requests; objects set up by a test need not be complete.
    """

    subresource: str = ""
    manager: str = ""
    dry_run: bool = False
    validate: bool = False


class Writer:
    """Writes to a :class:`Storage` by the API server's rules.

    Every method raises ``StatusError`` with the response that a client would get.

    Args:
        storage: storage of the objects.
        clock: clock for creation and deletion times.
    """

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self.storage = storage
        self._clock = clock

    # -- create ------------------------------------------------------------------------------

    def create(
        self, collection: Collection, namespace: str, body: Json, options: WriteOptions
    ) -> Json:
        """Store a new object and return it as stored."""
        kind = collection.kind
        obj = _without_nulls(body)
        self._check_type(kind, obj)
        meta = obj.setdefault("metadata", {})
        self._check_namespace(kind, namespace, meta)
        if meta.get("resourceVersion"):
            raise answers.internal("resourceVersion should not be set on objects to be created")
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"):
            meta.pop(name, None)
        return self._finish_create(collection, namespace, obj, options)

    def _finish_create(
        self, collection: Collection, namespace: str, obj: Json, options: WriteOptions
    ) -> Json:
        kind, meta = collection.kind, obj["metadata"]
        self._name(kind, meta)
        key = ObjectKey(namespace, meta["name"])
        self._require_namespace(kind, namespace)
        if key in collection.objects:
            raise answers.already_exists(kind.info, meta["name"])
        meta["uid"] = str(uuid.uuid4())
        meta["creationTimestamp"] = self._now()
        prepare_create(kind, obj)
        tidy(meta)
        if options.validate:
            _validation.check(kind, obj)
        if options.dry_run:
            return obj
        return self.storage.put(collection, key, obj).obj

    def _check_type(self, kind: Kind, obj: Json) -> None:
        info = kind.info
        if not kind.builtin and not (obj.get("kind") and obj.get("apiVersion")):
            missing = "Kind" if not obj.get("kind") else "apiVersion"
            raise answers.bad_request(
                f"the object provided is unrecognized (must be of type {info.kind}):"
                f" Object '{missing}' is missing"
            )
        given = obj.get("kind") or info.kind, obj.get("apiVersion") or info.api_version
        if given != (info.kind, info.api_version):
            raise answers.bad_request(
                f'{given[0]} in version "{given[1]}" cannot be handled as a {info.kind}'
            )
        obj["kind"], obj["apiVersion"] = info.kind, info.api_version

    def _check_namespace(self, kind: Kind, namespace: str, meta: Json) -> None:
        if not kind.info.namespaced:
            meta.pop("namespace", None)
            return
        if (meta.get("namespace") or namespace) != namespace:
            raise answers.bad_request(
                "the namespace of the provided object does not match the namespace sent on the"
                " request"
            )
        meta["namespace"] = namespace

    def _require_namespace(self, kind: Kind, namespace: str) -> None:
        if not kind.info.namespaced:
            return
        namespaces = self.storage.find("", "namespaces")
        found = namespaces.get(ObjectKey("", namespace)) if namespaces is not None else None
        if found is None:
            raise answers.not_found(NAMESPACES.info, namespace)

    @staticmethod
    def _name(kind: Kind, meta: Json) -> None:
        if not meta.get("name") and meta.get("generateName"):
            suffix = "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(5))
            meta["name"] = f"{meta['generateName'][:58]}{suffix}"
        name = meta.get("name") or ""
        if not name:
            missing = required("metadata.name", "name or generateName is required")
            raise answers.invalid(kind.info, "", [missing])
        if not _SUBDOMAIN.fullmatch(name) or len(name) > 253:
            wrong = bad_value("metadata.name", name, "not a lowercase RFC 1123 subdomain")
            raise answers.invalid(kind.info, name, [wrong])

    # -- update ------------------------------------------------------------------------------

    def replace(
        self, collection: Collection, key: ObjectKey, body: Json, options: WriteOptions
    ) -> Json:
        """Execute PUT; return the object as stored."""
        kind = collection.kind
        obj = _without_nulls(body)
        self._check_type(kind, obj)
        meta = obj.setdefault("metadata", {})
        self._check_url(kind, key, meta)
        old = collection.get(key)
        if old is None:
            raise answers.not_found(kind.info, key.name)
        uid = meta.get("uid")
        if uid and uid != old["metadata"]["uid"]:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: "
            raise answers.conflict(kind.info, key.name, why + old["metadata"]["uid"])
        if not meta.get("resourceVersion") and not kind.unconditional_update:
            field, why = "metadata.resourceVersion", "must be specified for an update"
            causes = [bad_value(field, 0, why)]
            raise answers.invalid(kind.info, key.name, causes, kind=kind.info.plural)
        return self._update(collection, key, old, obj, options)

    def patch(
        self,
        collection: Collection,
        key: ObjectKey,
        change: Callable[[Json], Json],
        options: WriteOptions,
    ) -> Json:
        """Execute PATCH: ``change`` returns the new object, given a copy of the old one."""
        kind = collection.kind
        old = collection.get(key)
        if old is None:
            raise answers.not_found(kind.info, key.name)
        obj = copy.copy(change(copy.copy(old)))
        if not isinstance(obj.get("metadata"), Mapping):
            raise answers.patch_refused()
        obj["metadata"] = dict(obj["metadata"])
        self._check_type(kind, obj)
        self._check_url(kind, key, obj["metadata"])
        uid = obj["metadata"].get("uid")
        if uid and uid != old["metadata"]["uid"]:
            changed = bad_value("metadata.uid", uid, "field is immutable")
            raise answers.invalid(kind.info, key.name, [changed])
        return self._update(collection, key, old, obj, options)

    def _check_url(self, kind: Kind, key: ObjectKey, meta: Json) -> None:
        name = meta.get("name")
        if not name:
            raise answers.bad_request(
                "the name of the object (based on URL) was undeterminable: name must be provided"
            )
        if name != key.name:
            raise answers.bad_request(
                f"the name of the object ({name}) does not match the name on the URL ({key.name})"
            )
        self._check_namespace(kind, key.namespace, meta)

    def _update(
        self,
        collection: Collection,
        key: ObjectKey,
        old: Json,
        obj: Json,
        options: WriteOptions,
    ) -> Json:
        """Apply the rules of every update; ``obj`` and its metadata must not be shared."""
        kind = collection.kind
        meta, before = obj["metadata"], old["metadata"]
        version = meta.get("resourceVersion")
        if version and version != before["resourceVersion"]:
            raise answers.conflict(kind.info, key.name)
        for name in (
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generateName",
            "managedFields",
        ):
            meta.pop(name, None)
            if name in before:
                meta[name] = before[name]
        self._prepare(kind, old, obj, options)
        return self._store(collection, key, old, obj, dry_run=options.dry_run)

    def _prepare(self, kind: Kind, old: Json, obj: Json, options: WriteOptions) -> None:
        tidy(obj["metadata"])
        prepare_update(kind, old, obj, options.subresource)
        self._check_finalizers(kind, old["metadata"], obj["metadata"])
        if options.validate:
            _validation.check(kind, obj)

    def _store(
        self, collection: Collection, key: ObjectKey, old: Json, obj: Json, *, dry_run: bool
    ) -> Json:
        """Write unless nothing changed; a deleted object without finalizers is removed."""
        obj["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if obj == old or dry_run:
            return obj
        meta = obj["metadata"]
        held = meta.get("finalizers") or meta.get("deletionGracePeriodSeconds")
        if "deletionTimestamp" in meta and not held:
            self.storage.remove(collection, key)
            return obj
        return self.storage.put(collection, key, obj).obj

    @staticmethod
    def _check_finalizers(kind: Kind, before: Json, meta: Json) -> None:
        if "deletionTimestamp" not in before:
            return
        added = set(meta.get("finalizers") or ()) - set(before.get("finalizers") or ())
        if added:
            names = ", ".join(json.dumps(name) for name in sorted(added))
            why = (
                "no new finalizers can be added if the object is being deleted, found new"
                f" finalizers []string{{{names}}}"
            )
            causes = [forbidden("metadata.finalizers", why)]
            raise answers.invalid(kind.info, meta["name"], causes)

    # -- server-side apply -------------------------------------------------------------------

    def apply(
        self,
        collection: Collection,
        key: ObjectKey,
        body: Json,
        options: WriteOptions,
        *,
        force: bool,
    ) -> tuple[Json, bool]:
        """Execute server-side apply; return the object as stored, and whether it was created."""
        kind = collection.kind
        applied = _without_nulls(body)
        if not applied.get("kind") or not applied.get("apiVersion"):
            raise answers.bad_request("invalid object type: /, Kind=")
        self._check_type(kind, applied)
        meta = applied.setdefault("metadata", {})
        if meta.get("managedFields"):
            raise answers.bad_request("metadata.managedFields must be nil")
        if not options.validate:
            meta.setdefault("name", key.name)
        self._check_url(kind, key, meta)
        live = collection.get(key)
        if live is None and options.subresource:
            raise answers.not_found(kind.info, key.name)
        version = meta.pop("resourceVersion", None)
        if version and (live is None or version != live["metadata"]["resourceVersion"]):
            raise answers.conflict(kind.info, key.name)
        self._reset(kind, applied, options.subresource)
        applier, wanted = (
            _fields.Applier(options.manager, options.subresource),
            _fields.owned(applied),
        )
        claims = self.storage.claims.get(live["metadata"]["uid"], {}) if live is not None else {}
        merged = _fields.apply(kind, live, claims, applier, wanted, force=force)
        merged["kind"], merged["apiVersion"] = kind.info.kind, kind.info.api_version
        if live is None:
            merged["metadata"]["name"] = key.name
            self._check_namespace(kind, key.namespace, merged["metadata"])
            done = self._finish_create(collection, key.namespace, merged, options)
        else:
            self._prepare(kind, live, merged, options)
            done = self._store(collection, key, live, merged, dry_run=options.dry_run)
        if not options.dry_run:
            self.storage.claims[done["metadata"]["uid"]] = {**claims, applier: wanted}
        return done, live is None

    @staticmethod
    def _reset(kind: Kind, applied: Json, subresource: str) -> None:
        """Drop fields that this endpoint does not write, so that they get no owner there."""
        if subresource == "status":
            meta = applied["metadata"]
            kept = {"name", "namespace"}
            if kind.builtin:
                kept |= {"labels", "annotations", "finalizers"}
            applied["metadata"] = {k: v for k, v in meta.items() if k in kept}
            for name in set(applied) - {"kind", "apiVersion", "metadata", "status"}:
                del applied[name]
        elif kind.status:
            applied.pop("status", None)

    def _now(self, plus_s: float = 0) -> str:
        return seconds_text(self._clock.now() + timedelta(seconds=plus_s))


def tidy(meta: Json) -> None:
    """Remove empty maps and lists of metadata, which are not stored."""
    for name in ("labels", "annotations", "finalizers", "ownerReferences", "generateName"):
        if name in meta and not meta[name]:
            del meta[name]


def _without_nulls(body: Mapping[str, Any]) -> Json:
    """Return a deep copy without null members: for the API server they are absent."""
    return {name: _copied(value) for name, value in body.items() if value is not None}


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _without_nulls(value)
    return [_copied(item) for item in value] if isinstance(value, list) else value

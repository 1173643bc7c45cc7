"""Deletion, and the verbs of pods: preconditions, finalizers, propagation, grace, binding.

Sources: Kubernetes API concepts ("Resource deletion"), the documents on finalizers and on garbage
collection; details follow a real server's answers.
"""

from __future__ import annotations

import attrs

from jobsetpy.aio import Clock
from jobsetpy.api.meta import ObjectKey
from jobsetpy.testing.apiserver import _answers as answers
from jobsetpy.testing.apiserver._kinds import Json, Kind
from jobsetpy.testing.apiserver._storage import Collection, Storage
from jobsetpy.testing.apiserver._writes import WriteOptions, Writer, tidy

_FOREGROUND, _ORPHAN = "foregroundDeletion", "orphan"
_SYSTEM_FINALIZERS = (_FOREGROUND, _ORPHAN)


@attrs.frozen
class DeleteOptions:
    """``DeleteOptions`` of a DELETE; ``None`` and "" mean not given."""

    propagation: str | None = None
    uid: str = ""
    resource_version: str = ""
    grace_seconds: int | None = None
    dry_run: bool = False


class Registry(Writer):
    """Executes every verb that changes objects."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        super().__init__(storage, clock)
        #: Pods on a node wait for ``gracePeriodSeconds=0``, as with a real kubelet.
        self.graceful_pods = False

    def delete(self, collection: Collection, key: ObjectKey, options: DeleteOptions) -> Json:
        """Execute DELETE; return the object's last state."""
        kind = collection.kind
        old = collection.get(key)
        if old is None:
            raise answers.not_found(kind.info, key.name)
        self._check_preconditions(kind, old, options)
        obj = dict(old)
        meta = obj["metadata"] = dict(old["metadata"])
        _set_system_finalizers(meta, options.propagation)
        grace = self._grace(kind, old, options)
        gone = not meta.get("finalizers") and not grace
        if gone and kind.info.kind != "Pod":
            if not options.dry_run:
                self.storage.remove(collection, key)
            return old
        self._mark(meta, grace)
        if options.dry_run or obj == old:
            return obj
        # A pod is marked first even if it is removed immediately, so watches see two events.
        marked = self.storage.put(collection, key, obj).obj
        if gone:
            self.storage.remove(collection, key)
        return marked

    def _mark(self, meta: Json, grace: int) -> None:
        """Record in the metadata that the object is to be removed after ``grace`` seconds."""
        marked = "deletionTimestamp" in meta
        if marked and grace >= (meta.get("deletionGracePeriodSeconds") or 0):
            return
        meta["deletionTimestamp"] = self._now(grace)
        meta["deletionGracePeriodSeconds"] = grace
        if not marked and "generation" in meta:
            meta["generation"] += 1

    @staticmethod
    def _check_preconditions(kind: Kind, old: Json, options: DeleteOptions) -> None:
        meta = old["metadata"]
        wanted = {"uid": options.uid, "resourceVersion": options.resource_version}
        for field, value in wanted.items():
            if value and value != meta[field]:
                why = f"the {field} in the precondition ({value}) is not that of the object"
                raise answers.conflict(kind.info, meta["name"], why)

    def _grace(self, kind: Kind, old: Json, options: DeleteOptions) -> int:
        if kind.info.kind != "Pod" or not self.graceful_pods:
            return 0
        spec, status = old.get("spec") or {}, old.get("status") or {}
        if not spec.get("nodeName") or status.get("phase") in {"Succeeded", "Failed"}:
            return 0
        if options.grace_seconds is not None:
            return options.grace_seconds
        return int(spec.get("terminationGracePeriodSeconds", 30))

    # -- pods --------------------------------------------------------------------------------

    def pod_action(
        self,
        collection: Collection,
        key: ObjectKey,
        action: str,
        body: Json,
    ) -> None:
        """Execute a POST to ``binding`` (assign the pod to a node) or ``eviction`` (delete it)."""
        pod = collection.get(key)
        if pod is None:
            raise answers.not_found(collection.kind.info, key.name)
        if action == "eviction":
            given = body.get("deleteOptions") or {}
            uid = (given.get("preconditions") or {}).get("uid") or ""
            self.delete(collection, key, DeleteOptions(uid=uid))
            return
        if "deletionTimestamp" in pod["metadata"]:
            why = f"pod {key.name} is being deleted, cannot be assigned to a host"
            raise answers.conflict(collection.kind.info, key.name, why)
        node = (pod.get("spec") or {}).get("nodeName")
        if node:
            why = f"pod {key.name} is already assigned to node {node!r}"
            raise answers.conflict(collection.kind.info, key.name, why)

        def bind(obj: Json) -> Json:
            spec = {**obj["spec"], "nodeName": (body.get("target") or {}).get("name", "")}
            meta = dict(obj["metadata"])
            notes = (body.get("metadata") or {}).get("annotations") or {}
            meta["annotations"] = {**(meta.get("annotations") or {}), **notes}
            return {**obj, "metadata": meta, "spec": spec}

        self.patch(collection, key, bind, WriteOptions("binding"))


def _set_system_finalizers(meta: Json, propagation: str | None) -> None:
    """Set the finalizers that make the garbage collector act before the object is removed."""
    if propagation is None:
        return
    kept = [name for name in meta.get("finalizers") or () if name not in _SYSTEM_FINALIZERS]
    match propagation:
        case "Foreground":
            kept.append(_FOREGROUND)
        case "Orphan":
            kept.append(_ORPHAN)
        case _:
            pass
    meta["finalizers"] = kept
    tidy(meta)

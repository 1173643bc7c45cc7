"""Kinds of the fake server, and their behaviour on create and update.

Kubernetes calls this a kind's *strategy*: the fields that a write may change, defaults, and
selectable fields. It is implemented as far as controllers notice it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from jobsetpy.api import structural_schema
from jobsetpy.api.meta import ResourceInfo
from jobsetpy.testing.apiserver._selectors import FieldReader

Json = dict[str, Any]

# Merge keys of associative lists: by path for custom kinds, by field name for the built-in ones
# (``patchMergeKey`` and ``x-kubernetes-list-map-keys`` of the OpenAPI schema).
BUILTIN_LIST_KEYS: Mapping[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "conditions": ("type",),
    "schedulingGates": ("name",),
    "addresses": ("type",),
    "imagePullSecrets": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
}


@attrs.frozen(eq=False)
class Kind:
    """One resource and its strategy.

    Args:
        info: its place in the REST API.
        status: ``/status`` is a subresource that the main resource cannot write.
        builtin: typed kind: the body may omit ``kind``, strategic merge patches work, and writes
            to ``/status`` may change labels and annotations. Custom kinds are the opposite.
        generation: ``metadata.generation`` counts changes of the desired state.
        fields: fields for field selectors, in addition to name and namespace.
        list_keys: keys of associative lists by dotted path (``status.conditions``); built-in
            kinds have those of ``BUILTIN_LIST_KEYS`` by field name as well.
        atomic_maps: dotted paths of maps that have one owner.
        defaults: sets defaults of a new object.
        keeps_status: a create keeps the status in its body.
        unconditional_update: a PUT may omit the resourceVersion.
        schema: structural schema of a custom kind, by which objects are pruned, defaulted and
            validated; ``None``: objects are stored unchanged.
    """

    info: ResourceInfo
    status: bool = False
    builtin: bool = True
    generation: bool = False
    fields: Mapping[str, FieldReader] = attrs.field(factory=dict)
    list_keys: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    atomic_maps: frozenset[str] = frozenset()
    defaults: Callable[[Json], None] | None = None
    keeps_status: bool = False
    unconditional_update: bool = True
    schema: Mapping[str, Any] | None = None

    @property
    def selectable(self) -> Mapping[str, FieldReader]:
        """All fields for field selectors."""
        return {
            "metadata.name": _reader("metadata", "name"),
            "metadata.namespace": _reader("metadata", "namespace"),
            **self.fields,
        }

    def keys_at(self, path: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return the keys of the associative list at ``path``; ``()``: a set; ``None``: atomic."""
        if path == ("metadata", "ownerReferences"):
            return ("uid",)
        if path == ("metadata", "finalizers"):
            return ()
        named = self.list_keys.get(".".join(path))
        if named is not None or not self.builtin:
            return named
        return BUILTIN_LIST_KEYS.get(path[-1]) if path else None


def _reader(*path: str, absent: str = "") -> FieldReader:
    def read(obj: Mapping[str, Any]) -> str:
        value: Any = obj
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is None:
            return absent
        return str(value).lower() if isinstance(value, bool) else str(value)

    return read


# --------------------------------------------------------------------------------------------------
# Defaults that controllers rely on.


def _pod(obj: Json) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("priority", 0)
    obj["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
    if spec.get("schedulingGates"):
        message = "Scheduling is blocked due to non-empty scheduling gates"
        gated = {"reason": "SchedulingGated", "message": message}
        obj["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", **gated}]


def _job(obj: Json) -> None:
    spec = obj.setdefault("spec", {})
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    template = spec.setdefault("template", {})
    if not spec.get("manualSelector"):
        uid, name = obj["metadata"]["uid"], obj["metadata"]["name"]
        spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
        own = {
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-name": name,
            "controller-uid": uid,
            "job-name": name,
        }
        meta = template.setdefault("metadata", {})
        meta["labels"] = {**(meta.get("labels") or {}), **own}
    obj["status"] = {}


def _spec_defaults(status: Mapping[str, Any], **fields: Any) -> Callable[[Json], None]:
    """Return a function that sets defaults of the spec and this status, as for most kinds."""

    def fill(obj: Json) -> None:
        obj["spec"] = {**copy.deepcopy(fields), **(obj.get("spec") or {})}
        obj["status"] = copy.deepcopy(dict(status))

    return fill


_ROLLING = {"maxUnavailable": "25%", "maxSurge": "25%"}
_deployment = _spec_defaults(
    {},
    replicas=1,
    revisionHistoryLimit=10,
    progressDeadlineSeconds=600,
    strategy={"type": "RollingUpdate", "rollingUpdate": _ROLLING},
)
_service = _spec_defaults({"loadBalancer": {}}, type="ClusterIP", sessionAffinity="None")
_claim = _spec_defaults({"phase": "Pending"}, volumeMode="Filesystem")


def _namespace(obj: Json) -> None:
    obj.setdefault("spec", {"finalizers": ["kubernetes"]})
    obj["status"] = {"phase": "Active"}
    meta = obj["metadata"]
    meta["labels"] = {**(meta.get("labels") or {}), "kubernetes.io/metadata.name": meta["name"]}


def _secret(obj: Json) -> None:
    obj.setdefault("type", "Opaque")


def _core(kind: str, plural: str, *, namespaced: bool = True) -> ResourceInfo:
    return ResourceInfo("", "v1", kind, plural, namespaced)


def _workload(group: str, kind: str, defaults: Callable[[Json], None] | None = None) -> Kind:
    info = ResourceInfo(group, "v1", kind, f"{kind.lower()}s")
    return Kind(info, True, generation=True, defaults=defaults)


NAMESPACES = Kind(
    _core("Namespace", "namespaces", namespaced=False),
    status=True,
    defaults=_namespace,
    fields={"status.phase": _reader("status", "phase")},
)
PODS = Kind(
    _core("Pod", "pods"),
    status=True,
    generation=True,
    defaults=_pod,
    fields={
        "spec.nodeName": _reader("spec", "nodeName"),
        "spec.restartPolicy": _reader("spec", "restartPolicy"),
        "spec.schedulerName": _reader("spec", "schedulerName"),
        "status.phase": _reader("status", "phase"),
    },
)
JOBS = Kind(
    ResourceInfo("batch", "v1", "Job", "jobs"),
    status=True,
    generation=True,
    defaults=_job,
    fields={"status.successful": _reader("status", "succeeded", absent="0")},
)
EVENTS = Kind(
    ResourceInfo("events.k8s.io", "v1", "Event", "events"),
    fields={
        "reason": _reader("reason"),
        "regarding.kind": _reader("regarding", "kind"),
        "regarding.name": _reader("regarding", "name"),
        "regarding.uid": _reader("regarding", "uid"),
    },
)
LEASES = Kind(
    ResourceInfo("coordination.k8s.io", "v1", "Lease", "leases"),
    unconditional_update=False,
)

BUILTIN: tuple[Kind, ...] = (
    NAMESPACES,
    PODS,
    JOBS,
    EVENTS,
    LEASES,
    Kind(
        _core("Service", "services"),
        status=True,
        defaults=_service,
    ),
    *(
        Kind(
            ResourceInfo(
                "admissionregistration.k8s.io",
                "v1",
                f"{kind}WebhookConfiguration",
                f"{kind.lower()}webhookconfigurations",
                namespaced=False,
            ),
            generation=True,
        )
        for kind in ("Mutating", "Validating")
    ),
    Kind(_core("ConfigMap", "configmaps")),
    Kind(_core("LimitRange", "limitranges")),
    Kind(_core("Secret", "secrets"), defaults=_secret),
    Kind(
        _core("Node", "nodes", namespaced=False),
        status=True,
        keeps_status=True,
    ),
    Kind(
        _core("PersistentVolumeClaim", "persistentvolumeclaims"),
        status=True,
        defaults=_claim,
    ),
    _workload("apps", "Deployment", _deployment),
    _workload("batch", "CronJob"),
    Kind(
        _core("ServiceAccount", "serviceaccounts"),
        unconditional_update=False,
    ),
)


def prepare_create(kind: Kind, obj: Json) -> None:
    """Prepare an object for a create: drop or default the status, set the generation."""
    if kind.status and not kind.keeps_status:
        obj.pop("status", None)
    if kind.defaults is not None:
        kind.defaults(obj)
    meta = obj["metadata"]
    meta.pop("generation", None)
    if kind.generation or not kind.builtin:
        meta["generation"] = 1
    _complete(kind, obj)


def prepare_update(kind: Kind, old: Json, new: Json, subresource: str) -> None:
    """Restore fields that an update may not change; count a new desired state as a generation."""
    if subresource == "status":
        _restrict_to_status(kind, old, new)
    elif kind.status:
        _keep(old, new, "status")
    _complete(kind, new)
    meta, before = new["metadata"], old["metadata"]
    meta.pop("generation", None)
    if "generation" in before:
        moved = subresource != "status" and _desired(kind, old) != _desired(kind, new)
        meta["generation"] = before["generation"] + moved


def _complete(kind: Kind, obj: Json) -> None:
    if kind.schema is not None:
        made = structural_schema.complete(kind.schema, obj)
        obj.clear()
        obj.update(made)


def _restrict_to_status(kind: Kind, old: Json, new: Json) -> None:
    writable = {"managedFields", "resourceVersion"}
    if kind.builtin:  # typed kinds: labels, annotations and finalizers, too
        writable |= {"labels", "annotations", "finalizers"}
    meta = {k: v for k, v in old["metadata"].items() if k not in writable}
    meta |= {k: v for k, v in new["metadata"].items() if k in writable}
    status = {"status": new["status"]} if new.get("status") is not None else {}
    rest = {k: v for k, v in old.items() if k not in {"metadata", "status"}}
    new.clear()
    new.update(rest, metadata=meta, **status)


def _keep(old: Json, new: Json, name: str) -> None:
    new.pop(name, None)
    if name in old:
        new[name] = old[name]


def _desired(kind: Kind, obj: Json) -> Json:
    """Return the part of an object whose changes count as a new generation."""
    if kind.builtin:
        return {"spec": obj.get("spec")}
    skipped = {"metadata", "status"} if kind.status else {"metadata"}
    return {name: value for name, value in obj.items() if name not in skipped}

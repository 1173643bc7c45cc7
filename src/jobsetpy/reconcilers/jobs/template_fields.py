"""Fields of a Job's pod template that change while it is suspended, and which came from the JobSet.

A queueing system changes them in the JobSet, and policies, webhooks and users add their own to the
Jobs. A Job therefore has an annotation with what was copied to it at its creation or last
resumption: only that may be removed when the JobSet's template no longer has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from jobsetpy.api import keys
from jobsetpy.api.jobset import ReplicatedJob
from jobsetpy.reconcilers.lost_nodes.deadline import tolerations
from jobsetpy.reconcilers.rules.json_tree import child, objects, text
from jobsetpy.reconcilers.startup_groups import spec as group_scheduling

GENERATED_KEYS: Final = frozenset(
    {
        keys.JOBSET_NAME,
        keys.JOBSET_UID,
        keys.REPLICATED_JOB_NAME,
        keys.RESTART_ATTEMPT,
        keys.JOB_RESTART_ATTEMPT,
        keys.REPLICATED_JOB_REPLICAS,
        keys.GLOBAL_REPLICAS,
        keys.JOB_INDEX,
        keys.JOB_KEY,
        keys.JOB_GLOBAL_INDEX,
        keys.GROUP_NAME,
        keys.GROUP_REPLICAS,
        keys.JOB_GROUP_INDEX,
        keys.COORDINATOR,
        keys.EXECUTION_ATTEMPT_ANNOTATION,
        keys.EXCLUSIVE_TOPOLOGY_ANNOTATION,
        keys.NODE_SELECTOR_ANNOTATION,
        keys.COSCHEDULING_BACKEND_ANNOTATION,
        keys.LOST_NODE_DEADLINE_ANNOTATION,
        keys.IN_PLACE_SPARES_ANNOTATION,
        keys.IN_PLACE_SPARE_JOBS_ANNOTATION,
        *group_scheduling.ANNOTATIONS,
    }
)
"""Keys whose values on Jobs and pods are set by the controller, never by a template."""

MAPS: Final = (("metadata", "labels"), ("metadata", "annotations"), ("spec", "nodeSelector"))
LISTS: Final = ("tolerations", "schedulingGates")
"""Lists of the pod spec."""

CONTAINERS: Final = ("containers", "initContainers")
RESOURCES: Final = ("requests", "limits")
"""Lists of containers, and the parts of their resources that may change (KEP-1150)."""

_MAX_RECORD: Final = 65536
"""Maximum length of a record: an object's annotations may have 256 KiB together."""


class CopiedFields(msgspec.Struct, rename="camel", omit_defaults=True):
    """Record of the fields that were copied: keys of maps, and whole items of lists."""

    labels: list[str] = []
    annotations: list[str] = []
    node_selector: list[str] = []
    tolerations: list[Any] = []
    scheduling_gates: list[Any] = []

    def of(self, name: str) -> list[Any]:
        """Return the part of a map or list by its name in JSON."""
        part: list[Any] = msgspec.to_builtins(self).get(name, [])
        return part


def mutable_fields(replicated: ReplicatedJob, lost_node_deadline_s: float) -> dict[str, Any]:
    """Return the fields of a ReplicatedJob's template, with the tolerations of the deadline."""
    pod_template = child(replicated.template, "spec", "template")
    metadata, spec = child(pod_template, "metadata"), child(pod_template, "spec")
    return {
        "metadata": {
            name: _without_generated(child(metadata, name)) for name in ("labels", "annotations")
        },
        "spec": {
            "nodeSelector": child(spec, "nodeSelector"),
            "tolerations": tuple(tolerations(spec, lost_node_deadline_s)),
            "schedulingGates": tuple(spec.get("schedulingGates") or ()),
        },
    }


def container_resources(replicated: ReplicatedJob) -> dict[str, dict[str, Any]]:
    """Return requests and limits of a template's containers, by list and name."""
    spec = child(replicated.template, "spec", "template", "spec")
    return {
        kind: {text(each, "name"): child(each, "resources") for _, each in objects(spec, kind)}
        for kind in CONTAINERS
    }


def record_of(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotation of a Job that has these fields of its template; {} for none."""
    parts: dict[str, Any] = {name: sorted(child(fields, parent, name)) for parent, name in MAPS}
    parts |= {name: child(fields, "spec").get(name) or () for name in LISTS}
    text = msgspec.json.encode({name: part for name, part in parts.items() if part}).decode()
    # Without a record nothing is removed.
    return {} if text == "{}" or len(text) > _MAX_RECORD else {keys.COPIED_FIELDS_ANNOTATION: text}


def copied_fields(annotations: Mapping[str, str]) -> CopiedFields:
    """Return the record of a Job; empty without a valid one, as for Jobs of the Go controller."""
    try:
        text = annotations.get(keys.COPIED_FIELDS_ANNOTATION, "{}")
        return msgspec.json.decode(text, type=CopiedFields)
    except msgspec.MsgspecError:
        return CopiedFields()


def _without_generated(values: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in values.items() if key not in GENERATED_KEYS}

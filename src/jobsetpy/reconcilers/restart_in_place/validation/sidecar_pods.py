"""Warnings about pods with a sidecar agent: what an end by the kubelet or a restart would lose.

A supervisor is the parent of its worker. It ends with another code than 0 when its pod has to stop,
and restarts no container, so none of this concerns it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from jobsetpy.reconcilers.rules.field_errors import FieldWarning
from jobsetpy.reconcilers.rules.json_tree import Json, child, objects, text

NO_RESTART_MARKS: Final = ("gke-gcsfuse/volumes", "gke-parallelstore/volumes")
"""Annotations that have a sidecar injected which cannot mount its volumes a second time."""
NO_RESTART_CONTAINERS: Final = ("gke-gcsfuse-sidecar", "gke-parallelstore-sidecar")
"""Names of those sidecars."""

_UNSEEN: Final = (
    "the kubelet ends a pod over this limit without a sign: a worker that then exits with 0 counts "
    "as complete; use exit code 143, or the mode supervisor"
)
_NO_RESTART: Final = (
    "RestartAllContainers leaves the worker without its volumes, which are mounted once for each "
    "pod: use the mode supervisor"
)


def sidecar_pod_warnings(template: Json, path: str) -> Iterator[FieldWarning]:
    """Return the warnings for a pod template whose agent is a sidecar; ``path`` is its path."""
    pod = child(template, "spec")
    for at, volume in objects(pod, "volumes"):
        folder = child(volume, "emptyDir")
        # A folder in memory cannot grow beyond its limit: a write to it fails instead.
        if "sizeLimit" in folder and text(folder, "medium") != "Memory":
            yield FieldWarning(f"{path}.spec.volumes[{at}].emptyDir.sizeLimit", _UNSEEN)
    for kind in ("initContainers", "containers"):
        for at, container in objects(pod, kind):
            if "ephemeral-storage" in child(child(container, "resources"), "limits"):
                field = f"{path}.spec.{kind}[{at}].resources.limits[ephemeral-storage]"
                yield FieldWarning(field, _UNSEEN)
            if text(container, "name") in NO_RESTART_CONTAINERS:
                yield FieldWarning(f"{path}.spec.{kind}[{at}]", _NO_RESTART)
    annotations = child(child(template, "metadata"), "annotations")
    for name in NO_RESTART_MARKS:
        if text(annotations, name) == "true":
            yield FieldWarning(f"{path}.metadata.annotations[{name}]", _NO_RESTART)

"""Resources and pull secret of containers that admission adds to pods.

An added container must not be the reason for the refusal of a pod. It sets limits if all other
containers of the pod have them (a quota on limits, or a policy, may require it). It requests only
resources that another container requests: a queue without a quota for others would never admit the
JobSet. Where a LimitRange refuses its amounts, annotations or the configuration set others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.annotations import read
from jobsetpy.api.quantities import RESOURCES
from jobsetpy.reconcilers.rules.field_errors import FieldWarning
from jobsetpy.reconcilers.rules.json_equality import quantity
from jobsetpy.reconcilers.rules.json_tree import (
    Json,
    Patch,
    child,
    containers,
    items,
    objects,
    pod_spec,
    text,
)

DEFAULT_REQUESTS: Final = {"cpu": "10m", "memory": "32Mi", "ephemeral-storage": "16Mi"}
DEFAULT_LIMITS: Final = {"cpu": "100m", "memory": "64Mi", "ephemeral-storage": "64Mi"}
"""Default limits by resource. Measured (``bench/agent.py``): an agent takes 25 MB, and 0.09 s of
CPU for its start. Logs of a container are rotated at 50 MiB together."""

_GUARANTEED: Final = ("cpu", "memory")


@attrs.frozen(kw_only=True)
class ContainerDefaults:
    """Settings of all containers that admission adds.

    Args:
        requests: amounts by resource, if the pod's containers request any; others default to
            :data:`DEFAULT_REQUESTS`.
        limits: the same, with :data:`DEFAULT_LIMITS`; in pods of class Guaranteed also requested.
        pull_secret: name of a Secret for the image, in each namespace; added to pods that name
            other pull secrets. "" for none.
    """

    requests: Mapping[str, str] = attrs.field(factory=dict)
    limits: Mapping[str, str] = attrs.field(factory=dict)
    pull_secret: str = ""

    def with_annotations(self, *annotations: Json) -> ContainerDefaults:
        """Return these settings with the amounts of annotations; later ones take precedence.

        An invalid annotation is ignored: admission refuses it.
        """
        requests, limits = dict(self.requests), dict(self.limits)
        for notes in annotations:
            requests |= read(keys.INJECTED_REQUESTS_ANNOTATION, notes, default={})
            limits |= read(keys.INJECTED_LIMITS_ANNOTATION, notes, default={})
        return attrs.evolve(self, requests=requests, limits=limits)


RESTRICTED: Final[Mapping[str, Any]] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""Security context of the restricted Pod Security Standard, without a user."""


def field_variables(fields: Mapping[str, str], prefix: str = "") -> list[dict[str, Any]]:
    """Return variables with fields of the pod as values, from the downward API.

    Args:
        fields: path of the field by name of the variable.
        prefix: beginning of all names.
    """
    return [
        {
            "name": f"{prefix}{name}",
            "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}},
        }
        for name, path in fields.items()
    ]


def pull_secrets(pod: Json, secret: str) -> list[Any]:
    """Return pull secrets of a pod with an injected container; [] for no change.

    A pod without any gets those of its service account, which it would lose with one.
    """
    there = items(pod, "imagePullSecrets")
    if not secret or not there or any(each == {"name": secret} for each in there):
        return []
    return [*there, {"name": secret}]


def pull_secret_patch(spec: Json, secret: str) -> Patch:
    """Return the same as a JSON patch of a pod; empty for no change."""
    wanted = pull_secrets(spec, secret)
    return [{"op": "replace", "path": "/spec/imagePullSecrets", "value": wanted}] if wanted else []


def pull_secret_warnings(jobset: Json) -> list[FieldWarning]:
    """Return warnings if an injected agent's image may be without a pull secret.

    A pod that names pull secrets does not get those of its service account. Secrets for an image of
    the same registry are assumed to serve the agent's as well.
    """
    found = []
    for at, job in objects(child(jobset, "spec"), "replicatedJobs"):
        pod = pod_spec(job)
        agents = {text(c, "image") for c in containers(pod) if text(c, "name") == keys.AGENT_NAME}
        others = {text(c, "image") for c in containers(pod)} - agents
        registries = {_registry(image) for image in others}
        for image in sorted(agents):
            if items(pod, "imagePullSecrets") and _registry(image) not in registries:
                why = (
                    "the pod's own pull secrets replace those of its service account, and none may "
                    f"serve {image[:127]!r}, the in-place restart agent: name the agent's secret "
                    "here as well, or have the operator set injectedContainers.pullSecret"
                )
                path = f"spec.replicatedJobs[{at}].template.spec.template.spec.imagePullSecrets"
                found.append(FieldWarning(path, why))
    return found


def _registry(image: str) -> str:
    """Return the host of an image's registry; "" for the container runtime's default."""
    host, slash, _ = image.partition("/")
    return host if slash and ("." in host or ":" in host or host == "localhost") else ""


def resources_for(pod: Json, settings: ContainerDefaults) -> dict[str, Any]:
    """Return ``resources`` of a container that is added to ``pod``; {} if it needs none.

    Guarantees: the pod's QoS class stays.

    Args:
        pod: spec of the pod, without the container.
        settings: amounts to request.
    """
    others = [_stated(child(each, "resources")) for each in containers(pod)]
    guaranteed = all(map(_is_guaranteed, others))
    found: dict[str, dict[str, str]] = {}
    for name in RESOURCES:
        if not any(name in each["requests"] for each in others):
            continue
        request = settings.requests.get(name, DEFAULT_REQUESTS[name])
        limit = settings.limits.get(name, DEFAULT_LIMITS[name])
        if guaranteed and name in _GUARANTEED:
            request = limit
        found.setdefault("requests", {})[name] = request
        if all(name in each["limits"] for each in others):
            limit = max(request, limit, key=quantity)
            found.setdefault("limits", {})[name] = limit
    return {"resources": found} if found else {}


def _stated(resources: Json) -> dict[str, Json]:
    """Return a container's resources; by the API server's default, a limit is also requested."""
    limits = child(resources, "limits")
    return {"requests": {**limits, **child(resources, "requests")}, "limits": limits}


def _is_guaranteed(resources: Json) -> bool:
    limits, requests = resources["limits"], resources["requests"]
    return all(
        name in limits and quantity(requests[name]) == quantity(limits[name])
        for name in _GUARANTEED
    )

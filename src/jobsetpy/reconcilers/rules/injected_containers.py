"""Resources and pull secret of containers that admission adds to pods.

An added container must never be the reason for the refusal of a pod. It sets limits if all other
containers of the pod have them (a quota on limits, or a policy, may require it), and fits each
LimitRange of the namespace. It requests only resources that another container requests: a queue
without a quota for others would never admit the JobSet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
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


def resources_for(
    pod: Json,
    settings: ContainerDefaults,
    limit_ranges: Iterable[Json] = (),
    *,
    sidecar: bool = False,
) -> dict[str, Any]:
    """Return ``resources`` of a container that is added to ``pod``; {} if it needs none.

    Guarantees: the pod's QoS class stays; a LimitRange that the pod satisfies without the container
    is satisfied with it, except a maximum of the type Pod that leaves no capacity for a sidecar
    in a pod of class Guaranteed: without an amount it would lose its class.

    Args:
        pod: spec of the pod, without the container.
        settings: amounts to request.
        limit_ranges: specs of the namespace's LimitRanges.
        sidecar: it runs next to the workers, so that its amounts are added to theirs.
    """
    all_rules = [rule for each in limit_ranges for _, rule in objects(each, "limits")]
    rules = [rule for rule in all_rules if text(rule, "type") == "Container"]
    pod_rules = [rule for rule in all_rules if text(rule, "type") == "Pod"]
    others = [_defaulted(child(each, "resources"), rules) for each in containers(pod)]
    guaranteed = all(map(_is_guaranteed, others))
    beside = _beside(pod, rules, sidecar=sidecar)
    found: dict[str, dict[str, str]] = {}
    for name in RESOURCES:
        if not any(name in each[kind] for each in others for kind in ("requests", "limits")):
            continue
        equal = guaranteed and name in _GUARANTEED
        request, limit = _amounts(settings, name, rules, others, equal=equal)
        if not equal or limit is None:
            # With the ratio of each container, the pod's sums have it as well.
            request = _with_ratio(pod_rules, name, request, limit)
        for kind, amount in (("requests", request), ("limits", limit)):
            there = [each[kind] for each in beside]
            if amount is not None and (equal or _fits(pod_rules, name, amount, there)):
                found.setdefault(kind, {})[name] = amount
    return {"resources": found} if found else {}


def _amounts(
    settings: ContainerDefaults,
    name: str,
    rules: Sequence[Json],
    others: Sequence[Json],
    *,
    equal: bool,
) -> tuple[str, str | None]:
    """Return request and limit of a container.

    Args:
        settings: amounts to request.
        name: name of the resource.
        rules: LimitRanges of containers.
        others: resources of the pod's other containers; without a limit if one of them has none.
        equal: True if both have to be equal.
    """
    limited = all(name in each["limits"] for each in others)
    request = settings.requests.get(name, DEFAULT_REQUESTS[name])
    limit = settings.limits.get(name, DEFAULT_LIMITS[name])
    if equal:
        request = limit
    elif limited:
        limit = max(request, limit, key=quantity)
    request, bound = _within(rules, name, request, limit if limited else None)
    return (bound, bound) if equal and bound is not None else (request, bound)


def _beside(pod: Json, rules: Sequence[Json], *, sidecar: bool) -> list[Json]:
    """Return resources of the containers that run at the same time as an added one."""
    running = [each for _, each in objects(pod, "containers")] if sidecar else []
    running += [
        each for _, each in objects(pod, "initContainers") if each.get("restartPolicy") == "Always"
    ]
    return [_defaulted(child(each, "resources"), rules) for each in running]


def _fits(rules: Sequence[Json], name: str, amount: str, others: Sequence[Json]) -> bool:
    """Return whether a pod's sum is within its maximum with one more amount."""
    amounts = [quantity(each[name]) for each in others if name in each]
    total = sum((each for each in amounts if isinstance(each, Decimal)), Decimal(quantity(amount)))
    maximums = [quantity(child(rule, "max").get(name)) for rule in rules]
    return all(total <= most for most in maximums if isinstance(most, Decimal))


def _defaulted(resources: Json, rules: Sequence[Json]) -> dict[str, dict[str, Any]]:
    """Return a container's resources with LimitRange defaults (API reference, LimitRangeItem)."""
    limits = dict(child(resources, "limits"))
    requests = {**limits, **child(resources, "requests")}
    for rule in rules:
        requests = {**child(rule, "defaultRequest"), **requests}
        limits = {**child(rule, "default"), **limits}
    return {"requests": requests, "limits": limits}


def _is_guaranteed(resources: Json) -> bool:
    limits, requests = child(resources, "limits"), child(resources, "requests")
    return all(
        name in limits and quantity(requests.get(name, limits[name])) == quantity(limits[name])
        for name in _GUARANTEED
    )


def _within(
    rules: Sequence[Json], name: str, request: str, limit: str | None
) -> tuple[str, str | None]:
    """Return a request and a limit, adjusted to LimitRanges."""
    for rule in rules:
        least, most = child(rule, "min").get(name), child(rule, "max").get(name)
        if least is not None:
            request = max(request, str(least), key=quantity)
            limit = None if limit is None else max(limit, str(least), key=quantity)
        if most is not None:
            request = min(request, str(most), key=quantity)
            limit = None if limit is None else min(limit, str(most), key=quantity)
    return _with_ratio(rules, name, request, limit), limit


def _with_ratio(rules: Sequence[Json], name: str, request: str, limit: str | None) -> str:
    """Return a request, raised where a LimitRange bounds the ratio of limit to request."""
    for rule in rules:
        ratio = quantity(child(rule, "maxLimitRequestRatio").get(name))
        if isinstance(ratio, Decimal) and ratio > 0 and limit is not None:
            needed = quantity(limit) / ratio
            if quantity(request) < needed:
                request = _written(name, needed)
    return request


def _written(name: str, amount: Decimal) -> str:
    """Return an amount, rounded up to whole millicores or bytes."""
    if name == "cpu":
        return f"{(amount * 1000).to_integral_value(ROUND_CEILING)}m"
    return str(amount.to_integral_value(ROUND_CEILING))

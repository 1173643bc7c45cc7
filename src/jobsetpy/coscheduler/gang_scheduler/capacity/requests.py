"""Resource requests of a pod.

Amounts are integers, in thousandths of a resource's unit. Rules: Kubernetes documentation,
"Resource Management for Pods and Containers", "Sidecar Containers" and "Pod Overhead".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from jobsetpy.reconcilers.rules.json_equality import quantity

MILLI: Final = 1000
Resources = Mapping[str, Any] | Iterable[tuple[str, Any]]
Amounts = tuple[tuple[str, int], ...]
"""Amounts by resource, sorted, without zeros."""


@lru_cache(maxsize=4096)
def milli(text: str | float) -> int:
    """Return a quantity in thousandths; 0 if it is invalid."""
    value = quantity(text)
    return int(value * MILLI) if not isinstance(value, str) else 0


def amounts(resources: Resources) -> dict[str, int]:
    """Return quantities by resource."""
    return {name: milli(value) for name, value in dict(resources).items()}


def pod_requests(
    containers: Iterable[Resources],
    init_containers: Iterable[tuple[Resources, bool]] = (),
    *,
    pod_level: Resources = (),
    overhead: Resources = (),
) -> Amounts:
    """Return the resource requests of a pod.

    Containers run together with the sidecars; other init containers run one by one before them,
    each together with the sidecars that were started before it. Requests at the pod level replace
    the sum of the containers.

    Args:
        containers: requests of each container.
        init_containers: requests of each in order, and True for a sidecar (it keeps running).
        pod_level: requests of the pod.
        overhead: overhead of its runtime class.
    """
    total: Counter[str] = Counter()
    for requests in containers:
        total.update(amounts(requests))
    sidecars: Counter[str] = Counter()
    peak: Counter[str] = Counter()
    for requests, stays in init_containers:
        own = Counter(amounts(requests))
        if stays:
            sidecars += own
        peak |= sidecars if stays else own + sidecars
    total = (total + sidecars) | peak
    total.update({name: amount - total[name] for name, amount in amounts(pod_level).items()})
    total.update(amounts(overhead))
    total["pods"] = MILLI
    return tuple(sorted((name, amount) for name, amount in total.items() if amount > 0))

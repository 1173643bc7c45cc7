"""Interruptions of pods by Kubernetes: the one table of what each costs and how each ends a pod.

Reasons of the pod condition ``DisruptionTarget``. A reason that is not listed is a failure of the
pod. Each of Kubernetes 1.34 to 1.37 has all of them: that of device taints since 1.33 (gate
``DRADeviceTaints``, on by default since 1.36), the others since 1.26. The disruption controller
sets the condition to ``False`` if the pod was not deleted within two minutes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_DOCS: Final = "https://kubernetes.io/docs/concepts/"
_CONDITIONS: Final = f"{_DOCS}workloads/pods/disruptions/#pod-disruption-conditions"

TAINT: Final = "DeletionByTaintManager"


class Disruption(NamedTuple):
    """Decision on one reason.

    Args:
        charged: True if a restart for it counts towards ``maxRestarts``.
        undeleted: True if the kubelet ends the pod without a deletion timestamp.
        why: who interrupts the pod, and the reason for the decision.
        document: document of Kubernetes on it.
    """

    charged: bool
    undeleted: bool
    why: str
    document: str


CONDITION_REASONS: Final[dict[str, Disruption]] = {
    "PreemptionByScheduler": Disruption(
        False, False, "pods with a higher priority need the node", _CONDITIONS
    ),
    TAINT: Disruption(
        False, False, "a NoExecute taint; charged if the node is not ready", _CONDITIONS
    ),
    "DeletionByDeviceTaintManager": Disruption(
        False,
        False,
        "a NoExecute taint of a device (dynamic resource allocation)",
        f"{_DOCS}scheduling-eviction/dynamic-resource-allocation/#device-taints-and-tolerations",
    ),
    "EvictionByEvictionAPI": Disruption(
        False, False, "the eviction API, as used by kubectl drain", _CONDITIONS
    ),
    "TerminationByKubelet": Disruption(
        False,
        True,
        "node pressure, a critical pod or graceful node shutdown: the pod is not at fault",
        _CONDITIONS,
    ),
    "DeletionByPodGC": Disruption(
        True, False, "the node is gone: charged as any other lost node", _CONDITIONS
    ),
}
"""Reasons of ``DisruptionTarget``."""

LEAVING_REASONS: Final = frozenset(k for k, each in CONDITION_REASONS.items() if not each.charged)
"""Reasons of the condition with which a pod leaves without being at fault."""
UNDELETED_REASONS: Final = frozenset(k for k, each in CONDITION_REASONS.items() if each.undeleted)
"""Reasons of the condition with which a pod ends without having been deleted."""

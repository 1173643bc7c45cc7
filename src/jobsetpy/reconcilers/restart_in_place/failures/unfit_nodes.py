"""Nodes that a JobSet's pods should avoid (restart in place).

A pod may say by its exit code that its node is *unfit*. Successors of failed pods
(``replacing.successors``) prefer other nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from jobsetpy.api import keys
from jobsetpy.api.child_pod import ChildPod
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.meta import version_number
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.json_tree import Json, child
from jobsetpy.reconcilers.rules.plan import EmitEvent

MAX_AVOIDED: Final = 8
"""Maximum number of nodes that a pod avoids: a program that fails everywhere excludes few."""


def unfit_codes(jobset: JobSet, template: Json) -> frozenset[int]:
    """Return the exit codes by which a pod says that its node is unfit.

    Args:
        jobset: its JobSet, whose annotation applies to all templates.
        template: spec of its Job's template, whose pods may have an annotation of their own.
    """
    name = keys.IN_PLACE_UNFIT_CODES_ANNOTATION
    own = child(template, "template", "metadata", "annotations").get(name)
    given = jobset.metadata.annotations.get(name, "") if own is None else own
    words = given.replace(",", " ").split() if isinstance(given, str) else ()
    return frozenset({keys.UNFIT_EXIT_CODE, *(int(word) for word in words if word.isdecimal())})


def is_unfit(pod: ChildPod, codes: frozenset[int]) -> bool:
    """Return True if a failed pod says that its node is unfit."""
    return pod.status.phase == "Failed" and any(one.exit_code in codes for one in pod.status.failed)


def unfit_event(pod: ChildPod, successor: str) -> EmitEvent:
    """Return the warning about a pod that has called its node unfit, and has a successor."""
    node, state = pod.spec.node_name, pod.metadata.annotations.agent_state
    reason = ""
    if state.startswith(keys.UNFIT_STATE):
        reason = f" ({state.removeprefix(keys.UNFIT_STATE)})"
    message = (
        f"pod {pod.metadata.name!r} has ended because node {node!r} is unfit for it{reason}: pod "
        f"{successor!r} replaces it, on another node if possible"
    )
    return EmitEvent(cond.WARNING, keys.NODE_UNFIT_REASON, message)


def avoided(jobset: JobSet, template: Json, pods: Iterable[ChildPod]) -> Sequence[str]:
    """Return the nodes that a successor avoids, ascending; at most ``MAX_AVOIDED``.

    These are the nodes that a pod of the Job has called unfit, the latest of them, as long as that
    pod is not deleted.
    """
    codes = unfit_codes(jobset, template)
    unfit = [pod for pod in pods if is_unfit(pod, codes) and pod.spec.node_name]
    unfit.sort(key=lambda pod: version_number(pod.metadata.resource_version), reverse=True)
    return sorted(list(dict.fromkeys(pod.spec.node_name for pod in unfit))[:MAX_AVOIDED])

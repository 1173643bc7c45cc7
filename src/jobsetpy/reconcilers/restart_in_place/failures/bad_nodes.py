"""Nodes that a JobSet's pods should avoid (restart in place).

A node is *suspect* when its pods have begun several restarts of a JobSet within a window: a process
that fails once can fail anywhere, a device that is broken fails again. The count is taken from the
JobSet's own history of restarts, so it survives the manager, and what the programs of one tenant do
has no effect on the pods of another. A pod may also say by its exit code that its node is *unfit*.

Successors of failed pods (:mod:`successors`) are kept off both, as far as the settings say.
Failures of a process or of a node count; a deleted pod says nothing about its node. Neither does a
hang: all workers of a group hang, and any of them may report it first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.child_pod import ChildPod
from jobsetpy.api.durations import in_words
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.meta import version_number
from jobsetpy.reconcilers.rules import conditions as cond
from jobsetpy.reconcilers.rules.backoff import within
from jobsetpy.reconcilers.rules.history import IN_PLACE, MAX_RECORDS, History
from jobsetpy.reconcilers.rules.json_tree import Json, child
from jobsetpy.reconcilers.rules.plan import EmitEvent

OFF: Final = "Off"
PREFER: Final = "Prefer"
REQUIRE: Final = "Require"
AVOIDANCE: Final = (PREFER, REQUIRE, OFF)

MAX_AVOIDED: Final = 8
"""Maximum number of nodes that a pod avoids: a program that fails everywhere excludes few."""
MAX_FAILURES: Final = MAX_RECORDS
"""Maximum of ``NodeMemory.failures``: the history has no more records."""

_WHERE: Final = {PREFER: ", on another node if possible", REQUIRE: ", on another node", OFF: ""}
_CAUSES: Final = frozenset(
    {
        keys.CONTAINER_FAILED_REASON,
        keys.POD_FAILED_REASON,
        keys.POD_RESTARTED_REASON,
        keys.NODE_LOST_REASON,
        keys.POD_SILENT_REASON,
        keys.WORKER_FAILED_REASON,
    }
)


@attrs.frozen(kw_only=True)
class NodeMemory:
    """Settings for suspect and unfit nodes.

    Args:
        failures: number of restarts that a node's pods begin within the window to make it suspect;
            0 for never.
        window_s: the window in seconds.
        avoid: how successors avoid such nodes: ``Prefer`` others, ``Require`` others, or ``Off``.
    """

    failures: int = 3
    window_s: float = 3600.0
    avoid: str = PREFER


def suspects(history: History, now: datetime, settings: NodeMemory) -> Mapping[str, int]:
    """Return suspect nodes with the number of restarts that their pods have begun."""
    if not settings.failures:
        return {}
    counts = Counter(
        each.cause.node
        for each in history
        if each.kind == IN_PLACE
        and each.began_at is not None
        and each.cause is not None
        and each.cause.node
        and each.cause.reason in _CAUSES
        and within((each.began_at,), now, settings.window_s)
    )
    return {node: count for node, count in counts.items() if count >= settings.failures}


def suspicion(
    before: History, after: History, now: datetime, settings: NodeMemory
) -> EmitEvent | None:
    """Return a warning if the restart that has just been recorded makes a node suspect."""
    if not after or after[-1].cause is None:
        return None
    last = after[-1]
    if before and (before[-1].kind, before[-1].number) == (last.kind, last.number):
        return None
    node = last.cause.node if last.cause is not None else ""
    count = suspects(after, now, settings).get(node)
    if count is None:
        return None
    message = (
        f"{explain(node, count, settings)}: check the node, and cordon it if it is broken; pods of "
        "this JobSet that are replaced after a failure "
    )
    message += {
        PREFER: "are created on other nodes where possible",
        REQUIRE: "are created on other nodes only",
        OFF: "may be created there again",
    }[settings.avoid]
    return EmitEvent(cond.WARNING, keys.NODE_SUSPECT_REASON, message)


def explain(node: str, count: int, settings: NodeMemory) -> str:
    """Return why a node is suspect."""
    return f"pods on node {node!r} have begun {count} restarts within {in_words(settings.window_s)}"


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


def unfit_event(pod: ChildPod, successor: str, settings: NodeMemory) -> EmitEvent:
    """Return the warning about a pod that has called its node unfit, and has a successor."""
    node, state = pod.spec.node_name, pod.metadata.annotations.agent_state
    reason = ""
    if state.startswith(keys.UNFIT_STATE):
        reason = f" ({state.removeprefix(keys.UNFIT_STATE)})"
    message = (
        f"pod {pod.metadata.name!r} has ended because node {node!r} is unfit for it{reason}: pod "
        f"{successor!r} replaces it{_WHERE[settings.avoid]}"
    )
    return EmitEvent(cond.WARNING, keys.NODE_UNFIT_REASON, message)


def avoided(
    jobset: JobSet,
    template: Json,
    pods: Iterable[ChildPod],
    now: datetime,
    settings: NodeMemory,
) -> Sequence[str]:
    """Return the nodes that a successor avoids, ascending; at most ``MAX_AVOIDED``.

    Nodes that a pod of the Job has called unfit come first, the latest of them, as long as that pod
    is not deleted; then suspect ones by their count.
    """
    if settings.avoid == OFF:
        return ()
    codes = unfit_codes(jobset, template)
    unfit = [pod for pod in pods if is_unfit(pod, codes) and pod.spec.node_name]
    unfit.sort(key=lambda pod: version_number(pod.metadata.resource_version), reverse=True)
    counts = suspects(jobset.status.restart_history, now, settings)
    order = [pod.spec.node_name for pod in unfit]
    order += sorted(counts, key=lambda node: -counts[node])
    return sorted(list(dict.fromkeys(order))[:MAX_AVOIDED])

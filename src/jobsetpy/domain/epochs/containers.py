"""Which containers of a pod may spend the budget of restarts by crashing before the barrier lifts.

Only those that the JobSet names and that the barrier waits for: the workers, what has to run before
them, and the agent. A container that came into the pod otherwise (a service mesh's, perhaps), or a
sidecar beside the agent, may crash as often as it likes.
"""

from __future__ import annotations

from typing import Final

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.domain.json_tree import Json, child, objects, text

RESTART_ACTIONS: Final = frozenset({"RestartAllContainers", "RestartPod"})
"""The kubelet's action that restarts a pod in place: as released, and as the KEP calls it."""

_AGENT_VARIABLES: Final = frozenset({"POD_NAME", "JOBSET_NAME"})


def charged_containers(jobset: JobSet, replicated_job: str) -> frozenset[str]:
    """Names of the containers of a ReplicatedJob's pods that are charged."""
    for item in jobset.spec.replicated_jobs:
        if item.name == replicated_job:
            spec = child(child(child(item.template, "spec"), "template"), "spec")
            named = [container for _, container in objects(spec, "containers")]
            named += [c for _, c in objects(spec, "initContainers") if not _is_stranger(c)]
            return frozenset(text(container, "name") for container in named)
    return frozenset()


def _is_stranger(container: Json) -> bool:
    """Whether an init container is a sidecar other than the agent."""
    if text(container, "restartPolicy") != "Always":
        return False
    actions = {text(rule, "action") for _, rule in objects(container, "restartPolicyRules")}
    names = {
        text(variable, "name").removeprefix(keys.AGENT_VARIABLE_PREFIX)
        for _, variable in objects(container, "env")
    }
    return not actions & RESTART_ACTIONS and not names >= _AGENT_VARIABLES

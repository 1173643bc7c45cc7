"""Which containers of a pod may spend the budget of restarts by crashing before the barrier lifts.

Only those that the JobSet names and that the barrier waits for: the workers, what has to run before
them, and the agent. A container that came into the pod otherwise (a service mesh's, perhaps), or a
sidecar beside the agent, may crash as often as it likes.
"""

from __future__ import annotations

from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.rules.agent_containers import strangers
from jobsetpy.reconcilers.rules.json_tree import child, objects, text


def charged_containers(jobset: JobSet, replicated_job: str) -> frozenset[str]:
    """Names of the containers of a ReplicatedJob's pods that are charged."""
    for item in jobset.spec.replicated_jobs:
        if item.name == replicated_job:
            pod = child(item.template, "spec", "template", "spec")
            waited_for = [c for c in objects(pod, "initContainers") if c not in strangers(pod)]
            named = [*objects(pod, "containers"), *waited_for]
            return frozenset(text(container, "name") for _, container in named)
    return frozenset()

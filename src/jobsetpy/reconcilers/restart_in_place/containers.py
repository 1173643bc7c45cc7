"""Containers of a pod whose crashes before the barrier lifts are charged to the budget.

Only those that the JobSet names and that the barrier waits for: the workers, containers that have
to run before them, and the agent. Crashes of an injected container (of a service mesh, for example)
or of another sidecar do not count.
"""

from __future__ import annotations

from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.rules.agent_containers import strangers
from jobsetpy.reconcilers.rules.json_tree import child, objects, text


def charged_containers(jobset: JobSet, replicated_job: str) -> frozenset[str]:
    """Return the names of the charged containers of a ReplicatedJob's pods."""
    for item in jobset.spec.replicated_jobs:
        if item.name == replicated_job:
            pod = child(item.template, "spec", "template", "spec")
            waited_for = [c for c in objects(pod, "initContainers") if c not in strangers(pod)]
            named = [*objects(pod, "containers"), *waited_for]
            return frozenset(text(container, "name") for _, container in named)
    return frozenset()

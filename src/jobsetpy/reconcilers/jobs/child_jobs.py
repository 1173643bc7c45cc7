"""Desired child Jobs of a JobSet, and their bodies.

A JobSet may have thousands of Jobs that differ in a few numbers only. The common parts are computed
once per ReplicatedJob; a body is then a handful of small dicts around shared parts. Bodies are
therefore read-only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet, ReplicatedJob
from jobsetpy.api.meta import owner_reference_to
from jobsetpy.reconcilers.coscheduling import backends
from jobsetpy.reconcilers.coscheduling import gangs as coscheduling_groups
from jobsetpy.reconcilers.jobs.runs import attempt_annotation
from jobsetpy.reconcilers.jobs.surroundings import dns_hostnames, pod_volumes, template_places
from jobsetpy.reconcilers.jobs.template_fields import mutable_fields, record_of
from jobsetpy.reconcilers.lost_nodes.deadline import deadline_of, job_fields, tolerations
from jobsetpy.reconcilers.rules.buckets import job_restart_targets
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.json_tree import Json, child
from jobsetpy.reconcilers.rules.names import (
    coordinator_endpoint,
    job_key,
    job_name,
    namespaced_job,
    subdomain,
)
from jobsetpy.reconcilers.rules.spares import spare_annotations, spares_by_name, success_policy
from jobsetpy.reconcilers.startup_groups import spec as group_scheduling

_NO_SCHEDULE_TOLERATION: Final = {
    "key": keys.NO_SCHEDULE_TAINT,
    "operator": "Exists",
    "effect": "NoSchedule",
}

_NO_MARKS: Final = backends.SchedulerFields()


class JobTemplateBuilder:
    """Builder of the Jobs of one ReplicatedJob.

    Args:
        shared: properties of all ReplicatedJobs.
        replicated: ReplicatedJob to build Jobs for.

    Attributes:
        pod_spec: pod spec common to all its Jobs, without the fields that differ per Job.
        reserves_nodes: True if each of its Jobs reserves nodes for itself.
    """

    def __init__(self, shared: SharedParts, replicated: ReplicatedJob) -> None:
        jobset: JobSet = shared.jobset
        name = replicated.name
        spares, deadline_s = shared.spares.get(name), shared.deadline_s
        self.replicated = replicated
        self._shared = shared
        self._first_global, self._first_in_group = shared.first[name]
        self._own_attempts = shared.own_attempts.get(name)

        common = shared.keys_of(replicated)
        job_template = child(replicated.template, "metadata")
        job_spec = child(replicated.template, "spec")
        pod_template = child(job_spec, "template")
        pod_meta = child(pod_template, "metadata")
        own = common | placement_annotations(jobset, replicated)
        own |= shared.startup_group.get(name, {}) | spare_annotations(spares) | shared.attempt
        self._job_labels = {**child(job_template, "labels"), **common}
        # It requests one recreation of a Job; copied from a template it would never stop.
        self._job_annotations = _without(
            job_template, keys.RESTART_ANNOTATION, keys.COPIED_FIELDS_ANNOTATION
        )
        self._job_annotations |= own | record_of(mutable_fields(replicated, deadline_s))
        self._pod_labels = {**child(pod_meta, "labels"), **common}
        self._pod_annotations = _without(pod_meta, keys.LOST_NODE_DEADLINE_ANNOTATION) | own
        if shared.pod_groups is not None and shared.pod_groups.of(name, 0) is not None:
            chosen = backends.job_annotations(shared.marks)
            self._job_annotations |= chosen
            self._pod_annotations |= coscheduling_groups.pod_annotations(jobset) | chosen

        if deadline_s:
            self._pod_annotations[keys.LOST_NODE_DEADLINE_ANNOTATION] = f"{deadline_s:g}s"

        # Read from the Job's annotations, because the template may set them directly.
        self.reserves_nodes = (
            keys.EXCLUSIVE_TOPOLOGY_ANNOTATION in self._job_annotations
            and keys.NODE_SELECTOR_ANNOTATION in self._job_annotations
        )
        self.pod_spec = shared.pod_spec(
            child(pod_template, "spec"), [_NO_SCHEDULE_TOLERATION] if self.reserves_nodes else []
        )
        self._pod_meta, self._pod_template = pod_meta, pod_template
        self._spec = {
            **job_spec,
            **job_fields(job_spec, deadline_s),
            **success_policy(job_spec, 0 if spares is None else spares.pods),
        }
        if keys.SKIP_SUSPEND_ANNOTATION not in jobset.metadata.annotations:
            self._spec["suspend"] = jobset.spec.suspend is True
        # The TTL would delete a finished Job; it would be missing, created again and run again.
        self._spec.pop("ttlSecondsAfterFinished", None)

    def name(self, index: int) -> str:
        """Return the name of the Job with this index."""
        return job_name(self._shared.jobset.metadata.name, self.replicated.name, index)

    def body(self, index: int) -> dict[str, Any]:
        """Return the Job with this index as JSON; it shares parts with other bodies."""
        name, shared = self.name(index), self._shared
        namespace = shared.jobset.metadata.namespace
        own = {
            keys.JOB_INDEX: str(index),
            keys.JOB_KEY: job_key(namespace, name),
            keys.JOB_GLOBAL_INDEX: str(self._first_global + index),
            keys.JOB_GROUP_INDEX: str(self._first_in_group + index),
        }
        if self._own_attempts is not None:
            own[keys.JOB_RESTART_ATTEMPT] = str(self._own_attempts.of(index))
        groups = shared.pod_groups
        group = None if groups is None else groups.of(self.replicated.name, index)
        in_group = {} if group is None else group.labels
        template = {} if groups is None else groups.template_annotation(group)
        pod_spec: Mapping[str, Any] = self.pod_spec
        if group is not None:
            pod_spec = backends.marked(pod_spec, shared.marks, group.pod_group)
        if self.reserves_nodes:
            selector = {keys.NAMESPACED_JOB_LABEL: namespaced_job(namespace, name)}
            pod_spec = {**pod_spec, "nodeSelector": {**child(pod_spec, "nodeSelector"), **selector}}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": self._job_labels | own,
                "annotations": self._job_annotations | own | template,
                "ownerReferences": shared.owners,
            },
            "spec": {
                **self._spec,
                "template": {
                    **self._pod_template,
                    "metadata": {
                        **self._pod_meta,
                        "labels": self._pod_labels | own | in_group,
                        "annotations": self._pod_annotations | own,
                    },
                    "spec": pod_spec,
                },
            },
        }


def _without(template: Json, *names: str) -> dict[str, str]:
    """Return the annotations of a template without numbers of spares, and without given ones."""
    left_out = (*names, keys.IN_PLACE_SPARES_ANNOTATION, keys.IN_PLACE_SPARE_JOBS_ANNOTATION)
    notes = child(template, "annotations")
    return {each: value for each, value in notes.items() if each not in left_out}


class SharedParts:
    """Properties of the Jobs of all ReplicatedJobs of a JobSet.

    Args:
        jobset: parent JobSet.
        features: the feature gates.
        marks: scheduler fields of pods in gangs, in addition to their labels.
        lost_node_deadline_s: deadline in seconds for pods on unreachable nodes, if the JobSet sets
            none.

    Attributes:
        first: sums of the replicas of all earlier ReplicatedJobs, and of those in the same API
            group, by name.
        replicas: sum of the replicas of all ReplicatedJobs.
        replicas_of_groups: the same for each API group.
    """

    def __init__(
        self,
        jobset: JobSet,
        features: Features,
        marks: backends.SchedulerFields = _NO_MARKS,
        lost_node_deadline_s: float = 0.0,
    ) -> None:
        self.jobset = jobset
        self.marks = marks
        self.owners = [owner_reference_to(jobset)]
        self.deadline_s = deadline_of(jobset.metadata.annotations, lost_node_deadline_s)
        self.own_attempts = job_restart_targets(jobset) if features.restart_job else {}
        self.pod_groups = coscheduling_groups.gangs_of(jobset) if features.coscheduling else None
        self.claims = template_places(jobset)
        self.startup_group = group_scheduling.job_annotations(jobset)
        self.attempt = attempt_annotation(jobset.status)
        self.spares = spares_by_name(jobset)
        self.first: dict[str, tuple[int, int]] = {}
        self.replicas = 0
        self.replicas_of_groups: Counter[str] = Counter()
        for item in jobset.spec.replicated_jobs:
            self.first[item.name] = self.replicas, self.replicas_of_groups[item.group_name]
            self.replicas += item.replicas
            self.replicas_of_groups[item.group_name] += item.replicas

    def keys_of(self, replicated: ReplicatedJob) -> dict[str, str]:
        """Return labels, which are annotations as well, of a ReplicatedJob's Jobs and pods."""
        jobset = self.jobset
        common = {
            keys.JOBSET_NAME: jobset.metadata.name,
            keys.JOBSET_UID: jobset.metadata.uid,
            keys.REPLICATED_JOB_NAME: replicated.name,
            keys.RESTART_ATTEMPT: str(jobset.status.restarts),
            keys.REPLICATED_JOB_REPLICAS: str(replicated.replicas),
            keys.GLOBAL_REPLICAS: str(self.replicas),
            keys.GROUP_NAME: replicated.group_name,
            keys.GROUP_REPLICAS: str(self.replicas_of_groups[replicated.group_name]),
        }
        endpoint = coordinator_endpoint(jobset)
        return common if endpoint is None else {**common, keys.COORDINATOR: endpoint}

    def pod_spec(
        self, template: Mapping[str, Any], own_tolerations: list[Mapping[str, str]]
    ) -> dict[str, Any]:
        """Return a pod template's spec with subdomain, volumes and tolerations."""
        spec = dict(template)
        if dns_hostnames(self.jobset):
            spec["subdomain"] = subdomain(self.jobset)
        volumes = pod_volumes(self.jobset, spec, self.claims)
        if volumes:
            spec["volumes"] = [*(spec.get("volumes") or ()), *volumes]
        tolerated = [*tolerations(spec, self.deadline_s), *own_tolerations]
        if tolerated:
            spec["tolerations"] = tolerated
        return spec


def placement_annotations(jobset: JobSet, replicated: ReplicatedJob) -> dict[str, str]:
    """Return the annotations of exclusive placement; a ReplicatedJob's override the JobSet's.

    The node-selector annotation counts only together with an exclusive-topology annotation at the
    same level.
    """
    out: dict[str, str] = {}
    template = child(replicated.template, "metadata", "annotations")
    for source in (jobset.metadata.annotations, template):
        topology = source.get(keys.EXCLUSIVE_TOPOLOGY_ANNOTATION)
        if topology is None:
            continue
        out[keys.EXCLUSIVE_TOPOLOGY_ANNOTATION] = topology
        if keys.NODE_SELECTOR_ANNOTATION in source:
            out[keys.NODE_SELECTOR_ANNOTATION] = source[keys.NODE_SELECTOR_ANNOTATION]
    return out

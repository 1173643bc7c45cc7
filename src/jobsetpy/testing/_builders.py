"""Builders of test objects: short, in the API's terms, with plain JSON as the result."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Self

from jobsetpy.api import keys

Json = dict[str, Any]


def _owner(owner: Mapping[str, Any]) -> Json:
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


class Builder:
    """Common methods of all builders: metadata, and any field by its wire name.

    Every method changes the builder and returns it; ``build()`` returns a copy, so that one
    builder can create many objects.
    """

    def __init__(self, api_version: str, kind: str, name: str, namespace: str) -> None:
        self._obj: Json = {
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {},
        }

    @property
    def _spec(self) -> Json:
        spec: Json = self._obj["spec"]
        return spec

    @property
    def _meta(self) -> Json:
        meta: Json = self._obj["metadata"]
        return meta

    def labels(self, labels: Mapping[str, str] | None = None, /, **more: str) -> Self:
        """Add labels."""
        self._meta.setdefault("labels", {}).update({**(labels or {}), **more})
        return self

    def annotations(self, annotations: Mapping[str, str] | None = None, /, **more: str) -> Self:
        """Add annotations."""
        self._meta.setdefault("annotations", {}).update({**(annotations or {}), **more})
        return self

    def finalizers(self, *names: str) -> Self:
        """Add finalizers."""
        self._meta.setdefault("finalizers", []).extend(names)
        return self

    def owned_by(self, owner: Mapping[str, Any]) -> Self:
        """Make ``owner`` (an object with a uid) the controller of this one."""
        self._meta.setdefault("ownerReferences", []).append(_owner(owner))
        return self

    def identity(self, *, uid: str = "", resource_version: str = "", generation: int = 0) -> Self:
        """Set fields that a server would set, for objects that are never stored in one."""
        if uid:
            self._meta["uid"] = uid
        if resource_version:
            self._meta["resourceVersion"] = resource_version
        if generation:
            self._meta["generation"] = generation
        return self

    def spec(self, **fields: Any) -> Self:
        """Set fields of the spec by their wire names."""
        self._spec.update(fields)
        return self

    def status(self, **fields: Any) -> Self:
        """Set fields of the status by their wire names."""
        self._obj.setdefault("status", {}).update(fields)
        return self

    def condition(self, kind: str, status: str = "True", *, reason: str = "Test") -> Self:
        """Add a condition to the status."""
        conditions = self._obj.setdefault("status", {}).setdefault("conditions", [])
        conditions.append({"type": kind, "status": status, "reason": reason, "message": ""})
        return self

    def build(self) -> Json:
        """Return the object as JSON data."""
        return copy.deepcopy(self._obj)


def _pod_template(spec: Mapping[str, Any] | None) -> Json:
    full = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example/main"}]}
    return {"spec": {**full, **(spec or {})}}


class JobSetBuilder(Builder):
    """Builder of a JobSet; created by :func:`make_jobset`."""

    def __init__(self, name: str, namespace: str) -> None:
        super().__init__(f"{keys.GROUP}/{keys.VERSION}", "JobSet", name, namespace)
        self._spec["replicatedJobs"] = []

    def replicated_job(  # noqa: PLR0913 - a builder: one keyword for each field
        self,
        name: str,
        *,
        replicas: int = 1,
        parallelism: int = 1,
        completions: int | None = None,
        backoff_limit: int = 0,
        indexed: bool = True,
        group: str = "",
        depends_on: Mapping[str, str] | None = None,
        job: Mapping[str, Any] | None = None,
        pod: Mapping[str, Any] | None = None,
    ) -> Self:
        """Add a ReplicatedJob.

        Args:
            name: its name.
            replicas: number of Jobs.
            parallelism: number of pods of each Job.
            completions: the same as ``parallelism`` when absent.
            backoff_limit: number of pod failures that a Job tolerates.
            indexed: completion mode Indexed rather than NonIndexed.
            group: API group, if not the default one.
            depends_on: status by name of the ReplicatedJobs to wait for.
            job: further fields of the Job spec.
            pod: further fields of the pod spec.
        """
        job_spec: Json = {
            "parallelism": parallelism,
            "completions": parallelism if completions is None else completions,
            "completionMode": "Indexed" if indexed else "NonIndexed",
            "backoffLimit": backoff_limit,
            "template": _pod_template(pod),
            **(job or {}),
        }
        entry: Json = {"name": name, "replicas": replicas, "template": {"spec": job_spec}}
        if group:
            entry["groupName"] = group
        if depends_on:
            entry["dependsOn"] = [
                {"name": other, "status": status} for other, status in depends_on.items()
            ]
        self._spec["replicatedJobs"].append(entry)
        return self

    def failure_policy(
        self,
        *,
        max_restarts: int | None = None,
        strategy: str | None = None,
        rules: Sequence[Mapping[str, Any]] = (),
    ) -> Self:
        """Set the failure policy; absent arguments are left out."""
        policy: Json = self._spec.setdefault("failurePolicy", {})
        if max_restarts is not None:
            policy["maxRestarts"] = max_restarts
        if strategy is not None:
            policy["restartStrategy"] = strategy
        if rules:
            policy["rules"] = [dict(rule) for rule in rules]
        return self

    def success_policy(self, operator: str, *targets: str) -> Self:
        """Set the success policy."""
        self._spec["successPolicy"] = {"operator": operator}
        if targets:
            self._spec["successPolicy"]["targetReplicatedJobs"] = list(targets)
        return self

    def startup_policy(self, order: str) -> Self:
        """Set the startup policy: ``AnyOrder`` or ``InOrder``."""
        self._spec["startupPolicy"] = {"startupPolicyOrder": order}
        return self

    def suspend(self, *, on: bool = True) -> Self:
        """Suspend it, or set ``suspend`` to false."""
        self._spec["suspend"] = on
        return self

    def ttl(self, seconds: int) -> Self:
        """Delete it this number of seconds after it has finished."""
        self._spec["ttlSecondsAfterFinished"] = seconds
        return self

    def managed_by(self, controller: str) -> Self:
        """Set the controller that manages it."""
        self._spec["managedBy"] = controller
        return self

    def in_place_restart(self, *, max_restarts: int = 3) -> Self:
        """Enable restart in place."""
        return self.failure_policy(max_restarts=max_restarts, strategy=keys.IN_PLACE_RESTART)


class JobBuilder(Builder):
    """Builder of a Job; created by :func:`make_job`."""

    def __init__(self, name: str, namespace: str) -> None:
        super().__init__("batch/v1", "Job", name, namespace)
        self._spec.update(
            {
                "parallelism": 1,
                "completions": 1,
                "completionMode": "Indexed",
                "backoffLimit": 0,
                "template": _pod_template(None),
            }
        )

    def pods(self, count: int) -> Self:
        """Set parallelism and completions."""
        return self.spec(parallelism=count, completions=count)

    def suspend(self, *, on: bool = True) -> Self:
        """Suspend it, or set ``suspend`` to false."""
        return self.spec(suspend=on)

    def of(
        self,
        jobset: Mapping[str, Any],
        replicated_job: str,
        index: int = 0,
        *,
        replicas: int = 1,
        attempt: int = 0,
    ) -> Self:
        """Make it a child of a JobSet: set the owner and the labels that identify the child."""
        meta = jobset["metadata"]
        return self.owned_by(jobset).labels(
            {
                keys.JOBSET_NAME: meta["name"],
                keys.JOBSET_UID: meta["uid"],
                keys.REPLICATED_JOB_NAME: replicated_job,
                keys.REPLICATED_JOB_REPLICAS: str(replicas),
                keys.JOB_INDEX: str(index),
                keys.RESTART_ATTEMPT: str(attempt),
            }
        )

    def complete(self) -> Self:
        """Let it succeed."""
        done = self._spec["completions"]
        return self.status(succeeded=done).condition("Complete", reason="CompletionsReached")

    def failed(self, reason: str = "BackoffLimitExceeded") -> Self:
        """Let it fail."""
        return self.status(failed=1).condition("Failed", reason=reason)


class PodBuilder(Builder):
    """Builder of a pod; created by :func:`make_pod`."""

    def __init__(self, name: str, namespace: str) -> None:
        super().__init__("v1", "Pod", name, namespace)
        self._spec.update(_pod_template(None)["spec"])

    def of(self, job: Mapping[str, Any], index: int = 0) -> Self:
        """Make it a pod of a Job, with the labels of the Job and a completion index."""
        self.owned_by(job).labels(job["metadata"].get("labels") or {})
        return self.annotations({keys.COMPLETION_INDEX_ANNOTATION: str(index)})

    def node(self, name: str) -> Self:
        """Assign it to a node."""
        return self.spec(nodeName=name)

    def phase(self, phase: str) -> Self:
        """Set the phase."""
        return self.status(phase=phase)

    def epoch(self, epoch: int) -> Self:
        """Set the epoch reported by the agent."""
        return self.annotations({keys.EPOCH_ANNOTATION: str(epoch)})


def make_jobset(name: str = "js", namespace: str = "default") -> JobSetBuilder:
    """Return a JobSet without ReplicatedJobs; add them with ``replicated_job``."""
    return JobSetBuilder(name, namespace)


def make_job(name: str = "job", namespace: str = "default") -> JobBuilder:
    """Return an indexed Job with one pod."""
    return JobBuilder(name, namespace)


def make_pod(name: str = "pod", namespace: str = "default") -> PodBuilder:
    """Return a pod with one container."""
    return PodBuilder(name, namespace)

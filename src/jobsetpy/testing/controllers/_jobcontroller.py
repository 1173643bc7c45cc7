"""Fake Job controller (and kubelet), for simulations with running pods.

It implements the parts on which JobSets rely: indexed pods, suspension, counters, completion, the
back-off limit. It acts within the request that triggers it, so simulations are deterministic. Not
implemented: pod failure policies, success policies, back-off delays, finalizers of pods,
``managedBy``.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping
from typing import Any

from jobsetpy.testing._builders import Builder
from jobsetpy.testing.apiserver._kinds import Json
from jobsetpy.testing.apiserver._storage import Change
from jobsetpy.testing.apiserver._world import World

_INDEX = "batch.kubernetes.io/job-completion-index"
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_FINAL = frozenset({"Succeeded", "Failed"})


class FakeJobController:
    """Creates pods for the Jobs of a world, and maintains the Jobs' status.

    Pods of deleted Jobs are removed by garbage collection: enable that as well.

    Args:
        world: a world or fake server.
        kubelet: pods run and are ready as soon as they exist; otherwise a test sets their status.
    """

    def __init__(self, world: World, *, kubelet: bool = True) -> None:
        self._world = world
        self._kubelet = kubelet
        self._dirty: dict[tuple[str, str], None] = {}
        world.add_controller(self._note, self._work)
        for job in world.list("jobs"):
            self._dirty[job["metadata"]["namespace"], job["metadata"]["name"]] = None
        self._work()

    def pods_of(self, name: str, *, namespace: str = "default") -> list[Json]:
        """Return the pods of a Job by completion index, including terminating pods."""
        job = self._world.get("jobs", name, namespace=namespace)
        if job is None:
            return []
        pods = self._world.owned("pods", job["metadata"]["uid"])
        return sorted(pods, key=lambda pod: (_index(pod), pod["metadata"]["name"]))

    def finish(self, name: str, *, namespace: str = "default", failed: bool = False) -> None:
        """Let a Job's pods succeed; or let one fail, which ends a Job without back-off."""
        live = [pod for pod in self.pods_of(name, namespace=namespace) if not _done(pod)]
        for pod in live[:1] if failed else live:
            pod_name = pod["metadata"]["name"]
            phase = "Failed" if failed else "Succeeded"
            self._world.set_status(
                "pods", pod_name, namespace=namespace, phase=phase, conditions=[]
            )

    def _note(self, change: Change) -> None:
        obj = change.new.obj
        meta = obj["metadata"]
        if obj["kind"] == "Job" and change.type != "DELETED":
            self._dirty[meta["namespace"], meta["name"]] = None
        elif obj["kind"] == "Pod":
            for ref in meta.get("ownerReferences") or ():
                if ref["kind"] == "Job" and ref.get("controller"):
                    self._dirty[meta["namespace"], ref["name"]] = None

    def _work(self) -> None:
        while self._dirty:
            namespace, name = next(iter(self._dirty))
            del self._dirty[namespace, name]
            job = self._world.get("jobs", name, namespace=namespace)
            if job is not None and "deletionTimestamp" not in job["metadata"]:
                self._sync(job)

    def _sync(self, job: Json) -> None:
        spec, old = job["spec"], job.get("status") or {}
        if any(_is_true(old, kind) for kind in ("Complete", "Failed")):
            return
        namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
        pods = self._world.owned("pods", job["metadata"]["uid"])
        live = [p for p in pods if not _done(p) and "deletionTimestamp" not in p["metadata"]]
        counts = Counter(pod["status"]["phase"] for pod in pods)
        failed, succeeded = counts["Failed"], counts["Succeeded"]
        completions = spec.get("completions") or spec["parallelism"]
        status: Json = {
            "succeeded": succeeded,
            "failed": failed,
            "active": len(live),
            "ready": sum(_is_true(pod["status"], "Ready") for pod in live),
            "conditions": list(old.get("conditions") or ()),
        }
        if failed > spec["backoffLimit"]:
            _set_condition(status, "Failed", "True", "BackoffLimitExceeded")
        elif succeeded >= completions:
            _set_condition(status, "Complete", "True", "CompletionsReached")
        elif spec.get("suspend"):
            _set_condition(status, "Suspended", "True", "JobSuspended")
        else:
            if any(one["type"] == "Suspended" for one in status["conditions"]):
                _set_condition(status, "Suspended", "False", "JobResumed")
            status["startTime"] = old.get("startTime") or job["metadata"]["creationTimestamp"]
            self._fill(job, pods, live, completions)
            self._write(namespace, name, old, status)
            return
        for pod in live:
            self._world.delete("pods", pod["metadata"]["name"], namespace=namespace)
        self._write(namespace, name, old, {**status, "active": 0, "ready": 0})

    def _fill(self, job: Json, pods: list[Json], live: list[Json], completions: int) -> None:
        """Create the missing pods, lowest index first; a failed pod is replaced."""
        succeeded = [pod for pod in pods if pod["status"]["phase"] == "Succeeded"]
        room = max(0, job["spec"]["parallelism"] - len(live))
        if job["spec"]["completionMode"] == "Indexed":
            taken = {_index(pod) for pod in (*succeeded, *live)}
            free = [index for index in range(completions) if index not in taken]
        else:
            free = list(range(max(0, completions - len(succeeded) - len(live))))
        for index in free[:room]:
            self._make(job, index)

    def _make(self, job: Json, index: int) -> None:
        meta, spec = job["metadata"], job["spec"]
        template = spec.get("template") or {}
        given = template.get("metadata") or {}
        indexed = spec["completionMode"] == "Indexed"
        suffix = "".join(secrets.choice(_ALPHABET) for _ in range(5))
        name = f"{meta['name']}-{index}-{suffix}" if indexed else f"{meta['name']}-{suffix}"
        labels, annotations = dict(given.get("labels") or {}), dict(given.get("annotations") or {})
        if indexed:
            annotations[_INDEX] = labels[_INDEX] = str(index)
        pod_spec = dict(template.get("spec") or {})
        if indexed and pod_spec.get("hostname") is None:
            pod_spec["hostname"] = f"{meta['name']}-{index}"
        pod = Builder("v1", "Pod", name, meta["namespace"]).owned_by(job).spec(**pod_spec)
        pod.labels(labels).annotations(annotations)
        self._world.create("pods", pod.build())
        if self._kubelet:
            ready = [{"type": "Ready", "status": "True"}]
            self._world.set_status(
                "pods", name, namespace=meta["namespace"], phase="Running", conditions=ready
            )

    def _write(self, namespace: str, name: str, old: Json, status: Json) -> None:
        if {**old, **status} != old:
            self._world.set_status("jobs", name, namespace=namespace, **status)


def _index(pod: Mapping[str, Any]) -> int:
    return int((pod["metadata"].get("annotations") or {}).get(_INDEX, -1))


def _done(pod: Mapping[str, Any]) -> bool:
    return pod["status"]["phase"] in _FINAL


def _is_true(status: Mapping[str, Any], kind: str) -> bool:
    conditions = status.get("conditions") or ()
    return any(one["type"] == kind and one["status"] == "True" for one in conditions)


def _set_condition(status: Json, kind: str, value: str, reason: str) -> None:
    kept = [one for one in status["conditions"] if one["type"] != kind]
    present = next((one for one in status["conditions"] if one["type"] == kind), None)
    if present is None or present["status"] != value:
        present = {"type": kind, "status": value, "reason": reason, "message": ""}
    status["conditions"] = [*kept, present]

"""The largest objects that etcd accepts, each of an expensive shape, for tests and benchmarks.

Each maker takes a number and returns a JobSet as JSON after defaulting. ``SIZES`` has the number with
which it is just below 1.5 MB, or as large as the rules for its fields allow.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from jobsetpy.api import keys
from jobsetpy.reconcilers.jobs.plan import ObservedJobSet
from support.jobsets import ModelCluster, jobset_json, replicated_job

MAX_BYTES: Final = 1_500_000
"""Default limit of etcd for one request."""

Json = dict[str, Any]
FAILS: Final = "BackoffLimitExceeded"


def _jobs(count: int, **more: Any) -> list[Json]:
    return [replicated_job(f"r{at}", **more) for at in range(count)]


_IN_PLACE_JOB = {"job_spec": {"backoffLimit": keys.INT32_MAX, "podReplacementPolicy": "Failed"}}


def _in_place(*jobs: Json) -> Json:
    annotations = {keys.IN_PLACE_AGENT_ANNOTATION: "supervisor"}
    policy = {"restartStrategy": "InPlaceRestart"}
    return _jobset(*jobs, annotations=annotations, failurePolicy=policy)


def _rules(count: int, **rule: Any) -> list[Json]:
    return [{"name": f"n{at}", "action": "RestartJobSet", **rule} for at in range(count)]


def _jobset(*jobs: Json, **more: Any) -> Json:
    return jobset_json(*jobs, name="j", **more)


def many_replicated_jobs(count: int) -> Json:
    """Many ReplicatedJobs."""
    return _jobset(*_jobs(count))


def startup_group(count: int) -> Json:
    """A startup group of all ReplicatedJobs, each named as a target."""
    names = [f"r{at}" for at in range(count)]
    return _jobset(*_jobs(count), groupSchedulingConfig={"targetReplicatedJobs": names})


def gangs(count: int) -> Json:
    """A gang for each ReplicatedJob, each named as a target."""
    annotations = {
        keys.COSCHEDULING_ANNOTATION: "ReplicatedJob",
        keys.COSCHEDULING_TARGETS_ANNOTATION: ",".join(f"r{at}" for at in range(count)),
    }
    return _jobset(*_jobs(count), annotations=annotations)


def chain(count: int) -> Json:
    """Each ReplicatedJob depends on the completion of the one before it."""
    jobs = [
        replicated_job(f"r{at}", depends_on=[(f"r{at - 1}", "Complete")] if at else ())
        for at in range(count)
    ]
    policy = {"rules": [{"name": "stay", "action": "FailJob", "targetReplicatedJobs": ["r0"]}]}
    return _jobset(*jobs, failurePolicy=policy)


def group_behind_chain(count: int) -> Json:
    """A startup group and a gang of two, the second of which depends on a chain of others."""
    jobs = [
        replicated_job(f"r{at}", depends_on=[(f"r{at - 1}", "Ready")] if at > 1 else ())
        for at in range(count)
    ]
    annotations = {
        keys.COSCHEDULING_ANNOTATION: "JobSet",
        keys.COSCHEDULING_TARGETS_ANNOTATION: f"r0,r{count - 1}",
    }
    group = {"targetReplicatedJobs": ["r0", f"r{count - 1}"]}
    return _jobset(*jobs, annotations=annotations, groupSchedulingConfig=group)


def stays_failed(count: int) -> Json:
    """A rule that keeps failed Jobs."""
    policy = {"rules": [{"name": "stay", "action": "FailJob"}]}
    return _jobset(*_jobs(count), failurePolicy=policy)


def many_reasons(count: int) -> Json:
    """A rule with many different reasons."""
    rule = {"onJobFailureReasons": [f"Reason{at:05}Reason{at:05}" for at in range(count)]}
    return _jobset(replicated_job("r"), failurePolicy={"rules": _rules(1, **rule)})


def many_targets(count: int) -> Json:
    """A rule with many different targets."""
    rule = {"targetReplicatedJobs": [f"r{at}" for at in range(count)]}
    return _jobset(*_jobs(count), failurePolicy={"rules": _rules(1, **rule)})


def many_rules(count: int) -> Json:
    """Rules that never apply."""
    rules = _rules(count, onJobFailureReasons=["Another"])
    return _jobset(replicated_job("r", 1000), failurePolicy={"rules": rules})


def large_patterns(count: int) -> Json:
    """Patterns of 13 characters, each of which would compile to a program of 38 MiB."""
    patterns = [rf"(\pL{{30}}){{10}}{at}" for at in range(count)]
    rules = _rules(1, onJobFailureMessagePatterns=patterns)
    return _jobset(replicated_job("r"), failurePolicy={"rules": rules})


def many_patterns(count: int) -> Json:
    """Small patterns, none of which matches."""
    patterns = [f"(a|b)?{at}" for at in range(count)]
    rules = _rules(1, onJobFailureMessagePatterns=patterns)
    return _jobset(replicated_job("r", 1000), failurePolicy={"rules": rules})


def restarts_of_jobs(count: int) -> Json:
    """Jobs that restart separately."""
    policy = {"maxRestarts": 10**6, "rules": [{"name": "one", "action": "RestartJob"}]}
    jobs = [replicated_job(f"r{at}", 1000) for at in range(count)]
    return _jobset(*jobs, failurePolicy=policy)


def restarts_of_replicated_jobs(count: int) -> Json:
    """ReplicatedJobs that restart separately."""
    policy = {"maxRestarts": 10**6, "rules": [{"name": "some", "action": "RestartReplicatedJob"}]}
    return _jobset(*_jobs(count), failurePolicy=policy)


def many_claims(count: int) -> Json:
    """Volume claims, all of which one of many ReplicatedJobs mounts."""
    templates = [
        {"metadata": {"name": f"v{at}"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
        for at in range(2500)
    ]
    policies = [
        {"templates": templates[at : at + 50], "retentionPolicy": {"whenDeleted": "Delete"}}
        for at in range(0, 2500, 50)
    ]
    mounts = [{"name": f"v{at}", "mountPath": f"/v{at}"} for at in range(2500)]
    worker = {"name": "worker", "image": "worker:1", "volumeMounts": mounts}
    jobs = [*_jobs(count), replicated_job("all", pod_spec={"containers": [worker]})]
    return _jobset(*jobs, volumeClaimPolicies=policies)


def many_variables(count: int) -> Json:
    """A container with many variables, and restart in place."""
    env = [{"name": f"V{at}", "value": "x"} for at in range(count)]
    containers = [{"name": "worker", "image": "worker:1", "env": env}]
    return _in_place(replicated_job("r", **_IN_PLACE_JOB, pod_spec={"containers": containers}))


def many_containers(count: int) -> Json:
    """A pod with many containers, and restart in place."""
    containers = [
        {"name": f"c{at}", "image": "worker:1", "command": ["work"]} for at in range(count)
    ]
    return _in_place(replicated_job("r", **_IN_PLACE_JOB, pod_spec={"containers": containers}))


def many_agents(count: int) -> Json:
    """ReplicatedJobs that restart in place, to each of which the agent is added."""
    containers = [{"name": "w", "image": "w:1", "command": ["work"]}]
    return _in_place(*_jobs(count, **_IN_PLACE_JOB, pod_spec={"containers": containers}))


def many_tolerations(count: int) -> Json:
    """Tolerations, with a deadline for lost nodes."""
    each = [{"key": f"k{at}", "operator": "Exists"} for at in range(count)]
    annotations = {keys.LOST_NODE_DEADLINE_ANNOTATION: "60s"}
    job = replicated_job("r", 1000, pod_spec={"tolerations": each})
    return _jobset(job, annotations=annotations)


SIZES: Final[Mapping[Callable[[int], Json], int]] = {
    many_replicated_jobs: 6_000,
    startup_group: 6_000,
    gangs: 6_000,
    chain: 4_000,
    group_behind_chain: 4_000,
    stays_failed: 6_000,
    many_reasons: 55_000,
    many_targets: 6_000,
    many_rules: 15_000,
    large_patterns: 50_000,
    many_patterns: 64,
    restarts_of_jobs: 10,
    restarts_of_replicated_jobs: 6_000,
    many_claims: 3_500,
    many_variables: 40_000,
    many_containers: 18_000,
    many_agents: 4_000,
    many_tolerations: 30_000,
}


def size_of(jobset: Json) -> int:
    """Return the bytes of an object as the API server stores it."""
    return len(msgspec.json.encode(jobset))


def observed(jobset: Json, state: str) -> ObservedJobSet:
    """Return a JobSet with its Jobs as the jobs reconciler observes it.

    Args:
        jobset: as JSON.
        state: ``new``, or the state of all its Jobs: ``running``, ``failed``, ``successful``,
            ``suspended``; or ``first failed``, if all others have succeeded.
    """
    cluster = ModelCluster(jobset)
    if state == "new":
        return cluster.observe()
    for item in jobset["spec"]["replicatedJobs"]:
        for index in range(item["replicas"]):
            _add_job(cluster, item["name"], index)
    names = list(cluster.jobs)
    if state == "running":
        cluster.ready(*names)
    elif state == "suspended":
        for job in cluster.jobs.values():
            job["spec"]["suspend"] = True
    elif state == "failed":
        for at, name in enumerate(names):
            cluster.fail(name, FAILS, f"Container c of pod {at} failed with exit code 3")
    else:
        cluster.complete(*names)
        if state == "first failed":
            cluster.fail(names[0], FAILS)
    return cluster.observe()


def _add_job(cluster: ModelCluster, replicated: str, index: int) -> None:
    name = f"j-{replicated}-{index}"
    cluster.jobs[name] = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "labels": {
                keys.JOBSET_NAME: "j",
                keys.REPLICATED_JOB_NAME: replicated,
                keys.JOB_INDEX: str(index),
                keys.RESTART_ATTEMPT: "0",
                keys.JOB_RESTART_ATTEMPT: "0",
            },
        },
        "spec": {"parallelism": 1, "completions": 1},
        "status": {},
    }


def cpu_ms(call: Callable[[], object], times: int = 1) -> float:
    """Return the minimum CPU time of this thread in milliseconds, without garbage collection."""
    best = float("inf")
    enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(times):
            began = time.thread_time()
            call()
            best = min(best, (time.thread_time() - began) * 1000)
    finally:
        if enabled:
            gc.enable()
    return best

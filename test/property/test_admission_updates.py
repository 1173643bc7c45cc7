"""A JobSet that was accepted at its creation accepts updates without changes, and legal ones."""

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.injection.agent import inject
from jobsetpy.reconcilers.restart_in_place.injection.update import restore
from jobsetpy.reconcilers.validation.create import validate_create
from jobsetpy.reconcilers.validation.defaulting import default_jobset, kept_defaults, rewrite_jobset
from jobsetpy.reconcilers.validation.update import validate_update
from jobsetpy.testing import json_patch

NAMES = ["a", "b", "c"]
TARGETS = st.sampled_from([["a"], ["b"], ["a", "b"]])

COSCHEDULING = st.fixed_dictionaries(
    {keys.COSCHEDULING_ANNOTATION: st.sampled_from(["JobSet", "ReplicatedJob", "Job"])},
    optional={
        keys.COSCHEDULING_TARGETS_ANNOTATION: st.sampled_from(["a", "b", "a,b"]),
        keys.COSCHEDULING_MIN_ANNOTATION: st.just("1"),
        keys.COSCHEDULING_TIMEOUT_ANNOTATION: st.sampled_from(["9", "x"]),
        keys.COSCHEDULING_CAPACITY_ANNOTATION: st.just("false"),
    },
)
PLACEMENT = st.fixed_dictionaries(
    {keys.EXCLUSIVE_TOPOLOGY_ANNOTATION: st.just("zone")},
    optional={keys.NODE_SELECTOR_ANNOTATION: st.just("true")},
)
AGENT = st.fixed_dictionaries(
    {keys.IN_PLACE_AGENT_ANNOTATION: st.sampled_from(["sidecar", "supervisor"])},
    optional={keys.IN_PLACE_CONTAINER_ANNOTATION: st.just("main")},
)
OTHERS = st.fixed_dictionaries(
    {},
    optional={
        keys.LOST_NODE_DEADLINE_ANNOTATION: st.sampled_from(["60s", "0s"]),
        keys.RESTART_BACKOFF_ANNOTATION: st.just("10s"),
    },
)
ANNOTATIONS = st.tuples(
    st.one_of(st.just({}), COSCHEDULING, COSCHEDULING, PLACEMENT, AGENT), OTHERS
).map(lambda both: {**both[0], **both[1]})
LABELS = st.fixed_dictionaries(
    {},
    optional={
        keys.POD_GROUP_NAME: st.just("mine"),
        keys.POD_GROUP_MIN_AVAILABLE: st.just("2"),
        "app": st.just("x"),
    },
)
POD_METADATA = st.fixed_dictionaries({}, optional={"labels": LABELS})
CONTAINERS = st.just([{"name": "main", "image": "i", "command": ["work"]}])
POD_SPECS = st.fixed_dictionaries(
    {"containers": CONTAINERS},
    optional={
        "restartPolicy": st.sampled_from(["Never", "OnFailure"]),
        "nodeSelector": st.just({"pool": "a"}),
        "priorityClassName": st.just("p"),
        "tolerations": st.just([{"operator": "Exists"}]),
    },
)
SIZES = st.sampled_from(
    [{}, {"parallelism": 2}, {"parallelism": 2, "completions": 2}, {"completions": 3}]
)


@st.composite
def replicated_jobs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Generate one to three ReplicatedJobs."""
    out: list[dict[str, Any]] = []
    for at, name in enumerate(NAMES[: draw(st.sampled_from([1, 2, 2, 3]))]):
        pod = {"metadata": draw(POD_METADATA), "spec": draw(POD_SPECS)}
        job: dict[str, Any] = {
            "name": name,
            "groupName": "default",
            "replicas": draw(st.sampled_from([1, 1, 2, 0])),
            "template": {"spec": {**draw(SIZES), "template": pod}},
        }
        if at and draw(st.integers(0, 4)) == 0:
            job["dependsOn"] = [{"name": NAMES[at - 1], "status": "Ready"}]
        out.append(job)
    return out


RULES = st.fixed_dictionaries(
    {"name": st.just("r"), "action": st.sampled_from(["FailJob", "RestartJob", "RestartJobSet"])},
    optional={
        "targetReplicatedJobs": TARGETS,
        "onJobFailureReasons": st.lists(st.sampled_from(["DeadlineExceeded", "Mine"]), unique=True),
        "onJobFailureMessagePatterns": st.just([r"exit code \d+"]),
    },
)
POLICIES = st.fixed_dictionaries(
    {"restartStrategy": st.sampled_from(["Recreate", "BlockingRecreate", "InPlaceRestart"])},
    optional={"maxRestarts": st.integers(0, 3), "rules": RULES.map(lambda rule: [rule])},
)
SPECS = st.fixed_dictionaries(
    {"replicatedJobs": replicated_jobs()},
    optional={
        "suspend": st.booleans(),
        "failurePolicy": POLICIES,
        "groupSchedulingConfig": st.fixed_dictionaries(
            {}, optional={"targetReplicatedJobs": TARGETS, "timeoutAfterSeconds": st.just(9)}
        ),
        "successPolicy": st.just({"operator": "Any"}),
        "startupPolicy": st.sampled_from(
            [{"startupPolicyOrder": "AnyOrder"}, {"startupPolicyOrder": "InOrder"}]
        ),
    },
)


def created(manifest: dict[str, Any]) -> dict[str, Any] | None:
    """Return the JobSet as it is stored; ``None`` if it is refused."""
    jobset, patch = rewrite_jobset(manifest)
    injected = inject(jobset, image="agent:1")
    if injected.problems:
        return None
    every = [*patch, *injected.patch, *default_jobset(injected.jobset)]
    stored = json_patch(manifest, every)
    return None if validate_create(stored) else stored


def problems(stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return the errors of an update, after its mutation by the webhook."""
    restored = restore(stored, new)
    jobset, patch = rewrite_jobset(restored.jobset, stored)
    every = [*restored.patch, *patch, *kept_defaults(jobset, stored)]
    return [str(each) for each in validate_update(stored, json_patch(new, every))]


def changed(stored: dict[str, Any], suspend: bool | None, labels: bool) -> dict[str, Any]:
    """Return a JobSet with changes of another controller: a label, a suspension, pod directives."""
    out = copy.deepcopy(stored)
    if labels:
        out["metadata"].setdefault("labels", {})["kueue.x-k8s.io/queue-name"] = "q"
    if suspend is not None:
        out["spec"]["suspend"] = suspend
        if stored["spec"].get("suspend") or suspend:
            for job in out["spec"]["replicatedJobs"]:
                pod = job["template"]["spec"]["template"]
                pod.setdefault("metadata", {}).setdefault("labels", {})["queue"] = "q"
                pod["spec"]["nodeSelector"] = {"pool": "b"}
                pod["spec"]["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
    return out


@settings(max_examples=1000)
@given(
    annotations=ANNOTATIONS,
    spec=SPECS,
    suspend=st.sampled_from([None, True, False]),
    labels=st.booleans(),
)
def test_accepted_jobset_accepts_legal_updates(annotations, spec, suspend, labels):
    """It is unchanged, applied again as it was written, labelled, suspended, or resumed."""
    manifest = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "js", "annotations": annotations},
        "spec": spec,
    }
    stored = created(manifest)
    if stored is None:
        return

    assert problems(stored, copy.deepcopy(stored)) == []
    assert problems(stored, copy.deepcopy(manifest)) == []
    assert problems(stored, changed(stored, suspend, labels)) == []
    resumed = changed(stored, False, labels)
    stopped = changed(stored, True, labels)
    assert problems(stopped, resumed) == []

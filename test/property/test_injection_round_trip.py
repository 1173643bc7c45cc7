"""A manifest with an injected agent, applied again, is the stored object."""

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.injection.agent import inject
from jobsetpy.reconcilers.restart_in_place.injection.update import restore
from jobsetpy.reconcilers.validation.defaulting import default_jobset
from jobsetpy.reconcilers.validation.update import validate_update
from jobsetpy.testing import json_patch


def named(values: list[str], **fields: Any) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Generate lists of objects with different names and some of the fields."""
    entry = st.fixed_dictionaries({"name": st.sampled_from(values)}, optional=fields)
    return st.lists(entry, max_size=3, unique_by=lambda each: each["name"])


ENV = named(["A", "POD_NAME", "NAMESPACE"], value=st.just("x"))
MOUNTS = named(["data", "tmp"], mountPath=st.just("/x"))
PORTS = st.lists(st.fixed_dictionaries({"containerPort": st.integers(8079, 8082)}), max_size=2)
RULES = st.just([{"action": "Restart", "exitCodes": {"operator": "In", "values": [7]}}])
RESOURCES = st.sampled_from([{}, {"limits": {"cpu": "1", "memory": "1Gi"}}])
CONTAINER = {
    "env": ENV,
    "volumeMounts": MOUNTS,
    "ports": PORTS,
    "args": st.just(["b"]),
    "resources": RESOURCES,
}
PODS = st.fixed_dictionaries(
    {
        "containers": st.fixed_dictionaries(
            {"name": st.just("worker"), "command": st.just(["a"])},
            optional={**CONTAINER, "restartPolicy": st.just("Never"), "restartPolicyRules": RULES},
        ).flatmap(lambda worker: named(["x", "y"], **CONTAINER).map(lambda more: [worker, *more])),
    },
    optional={
        "initContainers": named(["i", "j"], **CONTAINER),
        "volumes": named(["data", "tmp"], emptyDir=st.just({})),
        "restartPolicy": st.sampled_from(["Never", "OnFailure"]),
        "serviceAccountName": st.just("own-jobset-agent"),
    },
)
JOBS = st.fixed_dictionaries(
    {},
    optional={
        "backoffLimit": st.just(0),
        "parallelism": st.just(3),
        "completions": st.just(3),
        "completionMode": st.just("Indexed"),
    },
)


@given(
    mode=st.sampled_from(["sidecar", "supervisor"]),
    templates=st.lists(st.tuples(PODS, JOBS), min_size=1, max_size=3),
    image=st.sampled_from(["test.invalid/a:1", "test.invalid/b:2"]),
)
def test_manifest_applied_again_changes_nothing(mode, templates, image):
    """The update is injected and defaulted, and passes validation."""
    annotations = {
        keys.IN_PLACE_AGENT_ANNOTATION: mode,
        keys.IN_PLACE_CONTAINER_ANNOTATION: "worker",
    }
    jobs = [
        {"name": f"w{at}", "template": {"spec": {**job, "template": {"spec": pod}}}}
        for at, (pod, job) in enumerate(templates)
    ]
    policy = {"restartStrategy": "InPlaceRestart", "rules": [{"action": "FailJobSet"}]}
    manifest = {
        "metadata": {"name": "js", "annotations": annotations},
        "spec": {"failurePolicy": policy, "replicatedJobs": jobs},
    }
    injection = inject(manifest, image=image)
    assert injection.problems == []
    old = json_patch(injection.jobset, default_jobset(injection.jobset))

    again = restore(old, copy.deepcopy(manifest)).jobset
    new = json_patch(again, default_jobset(again))
    assert new == old
    assert validate_update(old, new) == []
    assert restore(old, copy.deepcopy(old)).patch == []

"""Resources, pull secrets and warnings of containers that admission adds."""

import copy

import pytest

from jobsetpy.api import keys
from jobsetpy.api.quantities import parse_amounts
from jobsetpy.reconcilers.restart_in_place.injection.agent import inject
from jobsetpy.reconcilers.restart_in_place.injection.update import restore
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.field_errors import FieldError
from jobsetpy.reconcilers.rules.injected_containers import (
    ContainerDefaults,
    resources_for,
)
from jobsetpy.reconcilers.validation.create import validate_create
from jobsetpy.reconcilers.validation.defaulting import default_jobset
from jobsetpy.reconcilers.validation.update import validate_update
from jobsetpy.reconcilers.validation.warnings import warnings

BOTH = {"cpu": "2", "memory": "1Gi"}
SMALL = {"cpu": "200m", "memory": "128Mi"}
TEMPLATE = "spec.replicatedJobs[0].template.spec.template"


def resources(*containers: dict, settings=None, kind="containers") -> dict:
    """Return the resources of a container that is added to a pod with these containers."""
    pod = {kind: [{"name": "c", "resources": each} for each in containers]}
    return resources_for(pod, settings or ContainerDefaults()).get("resources", {})


def amounts(requests: dict, limits: dict | None = None) -> dict:
    """Return resources with these amounts."""
    return {"requests": requests, **({} if limits is None else {"limits": limits})}


LIMITS = {"cpu": "100m", "memory": "64Mi"}
REQUESTS = {"cpu": "10m", "memory": "32Mi"}
GUARANTEED = amounts(LIMITS, LIMITS)


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        # A quota on limits or a policy: all other containers have limits.
        ([{"limits": BOTH, "requests": SMALL}], amounts(REQUESTS, LIMITS)),
        ([{"limits": {"memory": "1Gi"}}], amounts({"memory": "32Mi"}, {"memory": "64Mi"})),
        ([{"limits": BOTH, "requests": SMALL}, {"requests": SMALL}], amounts(REQUESTS)),
        ([{"limits": BOTH}], GUARANTEED),
        ([{"limits": BOTH, "requests": BOTH}], GUARANTEED),
        ([{}], {}),
        ([{"limits": {"example.com/gpu": "1"}}], {}),
        (
            [{"limits": {"ephemeral-storage": "1Gi"}}],
            amounts({"ephemeral-storage": "16Mi"}, {"ephemeral-storage": "64Mi"}),
        ),
    ],
)
def test_resources_follow_the_pod(containers, expected):
    """Limits if all containers have them, requests if any has."""
    assert resources(*containers) == expected


def test_init_containers_count_as_well():
    """A policy may check them, too."""
    assert resources({"limits": BOTH}, kind="initContainers") == GUARANTEED


@pytest.mark.parametrize(
    ("settings", "worker", "expected"),
    [
        (
            ContainerDefaults(limits={"cpu": "300m"}),
            {"limits": BOTH},
            amounts({"cpu": "300m", "memory": "64Mi"}, {"cpu": "300m", "memory": "64Mi"}),
        ),
        (
            ContainerDefaults(requests={"cpu": "200m"}),
            {"limits": BOTH, "requests": SMALL},
            amounts({"cpu": "200m", "memory": "32Mi"}, {"cpu": "200m", "memory": "64Mi"}),
        ),
    ],
)
def test_settings_replace_the_amounts_that_they_name(settings, worker, expected):
    """Other amounts keep their defaults; a limit is not less than the request."""
    assert resources(worker, settings=settings) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "'' is not one of cpu, memory, ephemeral-storage, as in cpu=100m,memory=64Mi"),
        ("gpu=1", "'gpu' is not one of cpu, memory, ephemeral-storage, as in"),
        ("cpu", "cpu: '' is not a quantity above 0, such as 100m or 64Mi"),
        ("cpu=0", "cpu: '0' is not a quantity above 0"),
        ("cpu=-1", "cpu: '-1' is not a quantity above 0"),
        ("memory=lots", "memory: 'lots' is not a quantity above 0"),
    ],
)
def test_error_of_invalid_amounts_says_what_is_expected(text, problem):
    """For flags, the configuration file and annotations."""
    with pytest.raises(ValueError, match=problem.replace("(", r"\(")):
        parse_amounts(text)


def jobset(notes=None, own=None, worker=None, pod=None) -> dict:
    """Return a JobSet with a sidecar agent; ``own`` annotations are those of its pod template."""
    container = {"name": "w", "image": "team.test:5000/train:1", "command": ["train"]}
    template = {
        "metadata": {"annotations": own or {}},
        "spec": {"containers": [{**container, "resources": worker or {}}], **(pod or {})},
    }
    annotations = {keys.IN_PLACE_AGENT_ANNOTATION: "sidecar", **(notes or {})}
    item = {"name": "w", "replicas": 1, "template": {"spec": {"template": template}}}
    policy = {"maxRestarts": 3, "restartStrategy": "InPlaceRestart"}
    return {
        "metadata": {"name": "js", "annotations": annotations},
        "spec": {"failurePolicy": policy, "replicatedJobs": [item]},
    }


def pod_of(obj: dict) -> dict:
    """Return the pod spec of the JobSet's template."""
    return obj["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]


def test_annotations_override_settings():
    """Those of the pod template override those of the JobSet."""
    obj = jobset(
        {keys.INJECTED_LIMITS_ANNOTATION: "cpu=1,memory=1Gi"},
        {keys.INJECTED_LIMITS_ANNOTATION: "cpu=2"},
        {"limits": BOTH},
    )
    settings = ContainerDefaults(limits={"memory": "9Mi"})
    (agent,) = pod_of(inject(obj, image="i", settings=settings).jobset)["initContainers"]

    assert agent["resources"]["limits"] == {"cpu": "2", "memory": "1Gi"}


def test_invalid_annotation_is_refused():
    """On the JobSet and on a pod template, each with its path."""
    obj = jobset({keys.INJECTED_LIMITS_ANNOTATION: "1"}, {keys.INJECTED_REQUESTS_ANNOTATION: "cpu"})
    made = inject(obj, image="i").jobset
    problems = [each for each in validate_create(made) if "injected-" in each.field]

    assert [each.field for each in problems] == [
        f"metadata.annotations[{keys.INJECTED_LIMITS_ANNOTATION}]",
        f"{TEMPLATE}.metadata.annotations[{keys.INJECTED_REQUESTS_ANNOTATION}]",
    ]
    assert all(isinstance(each, FieldError) for each in problems)


def test_pull_secret_is_added_to_those_of_the_pod_and_kept_after_an_update():
    """Only if the pod names some; otherwise those of its service account apply."""
    settings = ContainerDefaults(pull_secret="agent")
    plain = jobset(pod={"imagePullSecrets": [{"name": "team"}]})
    made = inject(plain, image="i", settings=settings).jobset

    assert pod_of(made)["imagePullSecrets"] == [{"name": "team"}, {"name": "agent"}]
    assert inject(made, image="i", settings=settings).patch == []
    assert "imagePullSecrets" not in pod_of(inject(jobset(), image="i", settings=settings).jobset)
    again = restore(made, copy.deepcopy(plain)).jobset
    assert validate_update(made, again) == []
    assert pod_of(again)["imagePullSecrets"] == pod_of(made)["imagePullSecrets"]


@pytest.mark.parametrize(
    ("image", "pull_secret", "secrets", "warned"),
    [
        ("other.test/agent:1", "", [{"name": "team"}], True),
        ("other.test/agent:1", "agent", [{"name": "team"}], False),
        ("other.test/agent:1", "", [], False),
        ("team.test:5000/agent:1", "", [{"name": "team"}], False),
    ],
)
def test_pod_with_its_own_pull_secrets_causes_a_warning(image, pull_secret, secrets, warned):
    """Unless the manager adds a secret, or the agent's image has the same registry."""
    settings = ContainerDefaults(pull_secret=pull_secret)
    made = inject(jobset(pod={"imagePullSecrets": secrets}), image=image, settings=settings).jobset
    assert default_jobset(made) is not None
    texts = [str(each) for each in warnings(made, Features(), pull_secret=pull_secret)]
    found = [each for each in texts if "pull secrets replace those of its service account" in each]

    assert bool(found) == warned

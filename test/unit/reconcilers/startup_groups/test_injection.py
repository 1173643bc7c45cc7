"""The barrier that pods get: what is injected where, and the shell loop itself."""

from __future__ import annotations

import copy
import os
import shutil
import subprocess

import pytest

from jobsetpy.api import keys
from jobsetpy.api.group_signal import MOUNT_PATH
from jobsetpy.reconcilers.rules.injected_containers import ContainerDefaults
from jobsetpy.reconcilers.startup_groups.injection import SCRIPT, GroupBarrier, add_barrier
from jobsetpy.testing import json_patch
from support import patience

NAME = keys.GROUP_INIT_CONTAINER
WATCH = GroupBarrier(agent_image="agent:1")
SHELLS = [
    command
    for command in (["bash"], ["dash"], ["busybox", "sh"])
    if shutil.which(command[0]) is not None
]


def pod(*, annotated=True, **spec):
    """A pod as the Job controller creates it."""
    annotations = {keys.GROUP_ATTEMPT: "4", keys.GROUP_SIZE: "8", keys.GROUP_TIMEOUT: "30"}
    return {
        "metadata": {
            "labels": {keys.JOBSET_NAME: "js", keys.JOBSET_UID: "u"},
            "annotations": annotations if annotated else {},
        },
        "spec": {"containers": [{"name": "w", "image": "w"}], **spec},
    }


def injected(given, barrier=None):
    """The pod after admission."""
    patch = add_barrier(given, barrier or GroupBarrier())
    return json_patch(copy.deepcopy(given), patch)


def init(made):
    """The injected container."""
    (found,) = [each for each in made["spec"]["initContainers"] if each["name"] == NAME]
    return found


ORDINARY, OTHER = {"name": "a"}, {"name": "b", "restartPolicy": None}
SIDECAR = {"name": "s", "restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, [NAME]),
        ([], [NAME]),
        ([ORDINARY], ["a", NAME]),
        ([ORDINARY, OTHER], ["a", "b", NAME]),
        ([SIDECAR], [NAME, "s"]),
        ([SIDECAR, ORDINARY], ["s", "a", NAME]),
        ([ORDINARY, SIDECAR], ["a", NAME, "s"]),
        ([ORDINARY, SIDECAR, OTHER, SIDECAR], ["a", "s", "b", NAME, "s"]),
    ],
)
def test_it_comes_last_of_the_ordinary_init_containers(before, after):
    """All that a user put there goes before, except sidecars that follow."""
    given = pod() if before is None else pod(initContainers=before)

    assert after == [each["name"] for each in injected(given)["spec"]["initContainers"]]


def test_pods_of_no_group_stay_as_they_are():
    """Neither those of other ReplicatedJobs nor those of JobSets without a group."""
    assert add_barrier(pod(annotated=False), WATCH) == []
    assert add_barrier({}, WATCH) == []


def test_injecting_twice_changes_nothing():
    """A webhook may be called again for the same pod."""
    once = injected(pod(volumes=[{"name": "v"}]))

    assert add_barrier(once, GroupBarrier()) == []
    assert [each["name"] for each in once["spec"]["volumes"]] == ["v", keys.GROUP_VOLUME]


def test_a_volume_of_that_name_is_not_doubled():
    """The API server would refuse two; the one that is there is the pod's own affair."""
    there = {"name": keys.GROUP_VOLUME, "configMap": {"name": "mine"}}
    made = injected(pod(volumes=[{"name": "v"}, there]))

    assert made["spec"]["volumes"] == [{"name": "v"}, there]
    assert init(made)["volumeMounts"][0]["name"] == keys.GROUP_VOLUME


def test_the_path_volume():
    """A shell, the ConfigMap as an optional volume, and what it waits for by the downward API."""
    made = injected(pod(), GroupBarrier(shell_image="shell:1"))
    container = init(made)

    assert container["image"] == "shell:1"
    assert container["command"] == ["sh", "-c", SCRIPT]
    (mount,) = container["volumeMounts"]
    assert (mount["name"], mount["mountPath"]) == (keys.GROUP_VOLUME, MOUNT_PATH)
    (volume,) = made["spec"]["volumes"]
    assert volume["configMap"] == {"name": "js-group-scheduling", "optional": True}
    paths = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in container["env"]}
    assert paths["GROUP_ATTEMPT"] == f"metadata.annotations['{keys.GROUP_ATTEMPT}']"
    assert paths["JOBSET_UID"] == f"metadata.labels['{keys.JOBSET_UID}']"
    assert "GROUP_TIMEOUT" in paths


def test_without_a_timeout_there_is_none():
    """An annotation that is not there cannot be read."""
    given = pod()
    del given["metadata"]["annotations"][keys.GROUP_TIMEOUT]

    assert "GROUP_TIMEOUT" not in {each["name"] for each in init(injected(given))["env"]}


def test_the_path_watch():
    """The agent waits, and has the volume too."""
    made = injected(pod(), WATCH)

    assert init(made)["image"] == "agent:1"
    assert init(made)["args"] == ["wait-for-group"]
    assert "command" not in init(made)
    assert made["spec"]["volumes"]


# ---- held from within


def held_pod(*containers, **spec):
    """A pod that is to be held from within; by default one container with a command."""
    given = pod(containers=list(containers) or [{"name": "w", "command": ["train", "-x"]}], **spec)
    given["metadata"]["annotations"][keys.GROUP_BARRIER_ANNOTATION] = "supervisor"
    return given


def variables(container):
    """Values of a container's variables, or the fields that they come from."""
    return {
        each["name"]: each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"]
        for each in container["env"]
    }


def test_held_from_within():
    """The agent is copied by an init container, and is the first program of every container."""
    two = {
        "name": "b",
        "command": ["other"],
        "terminationMessagePath": "/last",
        "env": [{"name": "A", "value": "1"}],
    }
    made = injected(held_pod({"name": "w", "command": ["train", "-x"], "args": ["y"]}, two), WATCH)
    spec = made["spec"]

    assert [each["command"] for each in spec["containers"]] == [
        ["/jobset-agent/supervise", "train", "-x"],
        ["/jobset-agent/supervise", "other"],
    ]
    assert spec["containers"][0]["args"] == ["y"]
    (install,) = spec["initContainers"]
    assert install["imagePullPolicy"] == "IfNotPresent"
    assert (install["name"], install["args"]) == (keys.GROUP_AGENT, ["install", "/jobset-agent"])
    assert [each["name"] for each in spec["volumes"]] == [keys.GROUP_VOLUME, keys.GROUP_AGENT]
    told = variables(spec["containers"][1])
    assert (
        told["A"],
        told["JOBSET_AGENT_MODE"],
        told["JOBSET_AGENT_TERMINATION_LOG"],
    ) == ("1", "hold", "/last")
    assert f"metadata.annotations['{keys.GROUP_ATTEMPT}']" == told["JOBSET_AGENT_GROUP_ATTEMPT"]
    assert made["metadata"]["annotations"][keys.GROUP_HELD] == "supervisor"
    assert add_barrier(made, WATCH) == []


def test_an_agent_that_is_there_waits_itself():
    """A supervisor of restarts in place gets what it needs to know; others take its folder."""
    supervised = {
        "name": "w",
        "command": ["/jobset-agent/supervise", "train"],
        "env": [{"name": "JOBSET_AGENT_POD_NAME", "value": "p"}],
    }
    given = held_pod(
        supervised,
        {"name": "b", "command": ["other"]},
        initContainers=[{"name": keys.AGENT_NAME}],
        volumes=[{"name": keys.AGENT_NAME, "emptyDir": {}}],
    )

    spec = injected(given, WATCH)["spec"]

    first, second = spec["containers"]
    assert first["command"] == ["/jobset-agent/supervise", "train"]
    assert [each["name"] for each in first["env"] if each["name"].endswith("POD_NAME")] == [
        "JOBSET_AGENT_POD_NAME"
    ]
    assert "JOBSET_AGENT_MODE" not in variables(first)
    assert "JOBSET_AGENT_GROUP_ATTEMPT" in variables(first)
    assert {keys.GROUP_VOLUME, keys.AGENT_NAME} == {each["name"] for each in second["volumeMounts"]}
    assert [each["name"] for each in spec["initContainers"]] == [keys.AGENT_NAME]
    assert [each["name"] for each in spec["volumes"]] == [keys.AGENT_NAME, keys.GROUP_VOLUME]


@pytest.mark.parametrize(
    ("container", "spec", "barrier"),
    [
        ({"name": "w"}, {}, WATCH),
        ({"name": "w", "command": ["a"], "startupProbe": {}}, {}, WATCH),
        ({"name": "w", "command": ["a"]}, {"automountServiceAccountToken": False}, WATCH),
        ({"name": "w", "command": ["a"]}, {}, GroupBarrier()),
        ({"name": "w", "command": ["/jobset-agent/supervise", "a"]}, {}, WATCH),
    ],
)
def test_what_cannot_be_held_from_within_is_held_in_front(container, spec, barrier):
    """An unknown entry point, a probe, no token, no agent image, an agent of another form."""
    made = injected(held_pod(container, **spec), barrier)

    assert [each["name"] for each in made["spec"]["initContainers"]] == [NAME]
    assert [container] == made["spec"]["containers"]
    assert keys.GROUP_HELD not in made["metadata"]["annotations"]


def test_without_a_token_there_is_nothing_to_watch_with():
    """Such pods wait for the volume."""
    assert init(injected(pod(automountServiceAccountToken=False), WATCH))["image"] == "bash"


@pytest.mark.parametrize(
    ("containers", "wanted"),
    [
        ([{"name": "w"}], None),
        ([{"name": "w", "resources": {}}], None),
        (
            [{"name": "w", "resources": {"limits": {"cpu": "1"}}}],
            {"limits": {"cpu": "100m"}, "requests": {"cpu": "10m"}},
        ),
        (
            [{"name": "w", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}],
            {
                "limits": {"cpu": "100m", "memory": "64Mi"},
                "requests": {"cpu": "100m", "memory": "64Mi"},
            },
        ),
    ],
)
@pytest.mark.parametrize("barrier", [GroupBarrier(), WATCH])
def test_resources_keep_the_quality_of_service(containers, wanted, barrier):
    """Best effort stays so, and limits equal requests in a pod that is Guaranteed."""
    assert init(injected(pod(containers=containers), barrier)).get("resources") == wanted


def test_the_container_fits_the_namespace_and_the_annotation():
    """Amounts of the pod's annotation, raised to the LimitRange's; the pull secret of settings."""
    given = pod(containers=[{"name": "w", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}])
    given["metadata"]["annotations"][keys.INJECTED_LIMITS_ANNOTATION] = "cpu=50m,memory=80Mi"
    given["spec"]["imagePullSecrets"] = [{"name": "team"}]
    rule = {"type": "Container", "min": {"cpu": "60m", "memory": "16Mi"}}
    barrier = GroupBarrier(settings=ContainerDefaults(pull_secret="jobset"))
    made = json_patch(copy.deepcopy(given), add_barrier(given, barrier, [{"limits": [rule]}]))
    amounts = {"cpu": "60m", "memory": "80Mi"}

    assert init(made)["resources"] == {"limits": amounts, "requests": amounts}
    assert made["spec"]["imagePullSecrets"] == [{"name": "team"}, {"name": "jobset"}]


@pytest.mark.parametrize(
    ("own", "workers", "agent_image", "user", "non_root"),
    [
        (None, None, "", 65532, True),
        (None, None, "agent:1", None, True),
        (None, 1000, "", 1000, True),
        (None, 1000, "agent:1", 1000, True),
        (1000, None, "", None, True),
        (1000, 2000, "agent:1", None, True),
        (None, 0, "agent:1", None, True),
        (0, None, "agent:1", None, False),
        (0, None, "", None, False),
    ],
)
def test_container_has_the_user_of_the_pod_or_its_workers_when_one_is_stated(
    own, workers, agent_image, user, non_root
):
    """It needs no right; only a shell's image needs a user where the pod states none."""
    given = pod(securityContext={} if own is None else {"runAsUser": own})
    if workers is not None:
        given["spec"]["containers"][0]["securityContext"] = {"runAsUser": workers}
    barrier = GroupBarrier(agent_image=agent_image)
    made = json_patch(copy.deepcopy(given), add_barrier(given, barrier))
    security = init(made)["securityContext"]

    assert (security.get("runAsUser"), security["runAsNonRoot"]) == (user, non_root)
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["allowPrivilegeEscalation"] is False


@pytest.fixture
def wait(tmp_path):
    """Runs the loop on files; its exit code and last words."""

    def run(shell, *, timeout="1", **files):
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        log = tmp_path / "log"
        script = SCRIPT.replace(MOUNT_PATH, str(tmp_path)).replace("/dev/termination-log", str(log))
        environ = {"JOBSET_UID": "u", "GROUP_ATTEMPT": "3", "GROUP_SIZE": "8"}
        done = subprocess.run(
            [*shell, "-c", script],
            env={"PATH": os.environ["PATH"], "GROUP_TIMEOUT": timeout, **environ},
            capture_output=True,
            timeout=patience.scaled(10),
            check=False,
        )
        return done.returncode, log.read_text() if log.exists() else ""

    return run


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
@pytest.mark.parametrize("value", ["u 3\n", "u 3", "u 12\n"])
def test_the_loop_ends_when_its_attempt_is_released(wait, shell, value):
    """That one or a later one; whether or not the file ends with a line's end."""
    assert wait(shell, started=value) == (0, "")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"started": "u 2\n", "waiting": "u 3 7 8 noon\n"}, "7 of 8 pods had started at noon"),
        ({"started": "v 9\n", "waiting": "u 2 7 8 noon\n"}, "fewer than 8 pods had started"),
        ({"started": "u x\n", "waiting": "v 3 7 8 noon\n"}, "fewer than 8 pods had started"),
    ],
)
def test_the_loop_does_not_take_another_signal_for_its_own(wait, files, said):
    """Not an older attempt's, nor another JobSet's of the same name; and it says how far it was."""
    message = f"group scheduling timed out after 1 s: {said}"
    assert wait(SHELLS[-1], **files) == (1, message)

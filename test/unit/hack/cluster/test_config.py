"""Command lines and files of the components for given settings."""

import tomllib
from pathlib import Path

import pytest

from hack.cluster import _config, _dns, _node_config
from hack.cluster._config import Ports, Settings

FOLDER = Path("/folder")
PORTS = Ports(api=21000, etcd=21001, etcd_peer=21002)


def apiserver(**settings):
    return _config.apiserver_argv(Path("/bin/x"), FOLDER, PORTS, Settings(**settings))


@pytest.mark.parametrize(
    ("settings", "present", "absent"),
    [
        ({}, "--bind-address=127.0.0.1", "--feature-gates"),
        ({}, "--authorization-mode=RBAC", "--disable-admission-plugins"),
        ({"nodes": 1}, "--authorization-mode=Node,RBAC", "--endpoint-reconciler-type"),
        ({"nodes": 1}, "--secure-port=443", "--bind-address=127.0.0.1"),
        ({"nodes": 1}, "--enable-aggregator-routing=true", "--disable-admission-plugins"),
        ({"controller_manager": False}, "--disable-admission-plugins=ServiceAccount", "--nothing"),
        ({"feature_gates": {"A": True, "B": False}}, "--feature-gates=A=true,B=false", "--nothing"),
        ({"runtime_config": {"x/v1": True}}, "--runtime-config=x/v1=true", "--nothing"),
        ({"max_requests_inflight": 7}, "--max-requests-inflight=7", "--max-mutating"),
    ],
)
def test_each_setting_changes_the_api_servers_command_line(settings, present, absent):
    """A setting adds only its own flag."""
    argv = apiserver(**settings)
    assert present in argv
    assert not [word for word in argv if word.startswith(absent)]


@pytest.mark.parametrize(
    ("version", "layout", "runtime"),
    [
        ("1.6.20~ds1", 2, "io.containerd.grpc.v1.cri"),
        ("v1.7.28", 2, "io.containerd.grpc.v1.cri"),
        ("v2.1.0", 3, "io.containerd.cri.v1.runtime"),
    ],
)
def test_the_containerd_configuration_has_the_layout_of_the_version(version, layout, runtime):
    """Version 2 has other sections for all settings."""
    text = _node_config.containerd_config(
        version=version,
        cni_bin=Path("/cni/bin"),
        cni_conf=Path("/cni/conf"),
        snapshotter="overlayfs",
        runc=Path("/sbin/runc"),
    )
    config = tomllib.loads(text)
    assert config["version"] == layout
    plugin = config["plugins"][runtime]
    options = plugin["containerd"]["runtimes"]["runc"]["options"]
    assert options == {"BinaryName": "/sbin/runc", "SystemdCgroup": False}
    assert plugin["restrict_oom_score_adj"] is True


def test_nodes_never_share_an_address():
    """Addresses, pod ranges and wires differ for all valid numbers."""
    numbers = range(1, _config.MAX_NODES + 1)
    for make in (_config.node_address, _config.pod_range, _config.node_name):
        assert len({make(n) for n in numbers}) == _config.MAX_NODES
    assert all(len(_node_config.node_wire(n)["wire"]) <= 15 for n in numbers)


def test_pods_search_the_clusters_domain_when_it_is_served():
    """Without a DNS server a search path would only cause more failed look-ups."""

    def domain(**settings):
        config = _node_config.kubelet_config(
            1, pki=FOLDER, cgroup="c", settings=Settings(nodes=1, **settings)
        )
        return config.get("clusterDomain")

    assert domain() is None
    assert domain(dns=True) == _config.DNS_DOMAIN
    corefile = _dns.corefile(FOLDER, "dev")
    assert f"kubernetes {_config.DNS_DOMAIN} in-addr.arpa {{" in corefile
    assert f"kubeconfig {FOLDER}/coredns.kubeconfig dev" in corefile
    assert corefile.count(f"bind {_config.DNS_ADDRESS}") == 2

"""Names, folders and ports of clusters; existing clusters; both versions of cgroups."""

import json

import pytest

from hack.cluster import Cluster, ClusterError, _cgroups, _nodes, _state


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a/b", "..", "a" * 41, "a b"])
def test_names_that_could_leave_the_folder_are_refused(name):
    """A name is used for a folder, a cgroup and a context."""
    with pytest.raises(ClusterError, match="invalid name"):
        _state.check_name(name)


def test_clusters_get_different_ports(state):
    """Ports are reserved in a file before anything listens on them."""
    taken = set()
    for number in range(5):
        folder, ports = _state.create_folder(f"c{number}")
        assert folder.stat().st_mode & 0o777 == 0o700
        taken |= {ports.api, ports.etcd, ports.etcd_peer}
    assert len(taken) == 15
    assert Cluster.names() == [f"c{number}" for number in range(5)]


def test_a_name_can_be_used_once(state):
    """The error has the command that ends the other cluster."""
    _state.create_folder("dev")
    with pytest.raises(ClusterError, match="down --name dev"):
        _state.create_folder("dev")


def test_down_removes_the_remains_of_a_crash(state):
    """No process is left, but the folder and the cgroup exist."""
    folder, _ = _state.create_folder("dev")
    cgroup = folder.parent.parent / "cgroup" / "jobsetpy-dev-1"
    (cgroup / "kubepods" / "pod1").mkdir(parents=True)
    gone = {"pid": 4194304, "start_time": 1, "boot": "another"}
    (folder / "supervisor.json").write_text(json.dumps(gone))
    (folder / "pids.json").write_text(json.dumps({"etcd": gone}))
    (folder / "spec.json").write_text(json.dumps({"cgroups": [str(cgroup)]}))
    cluster = Cluster(name="dev")
    assert not cluster.running
    cluster.down()
    cluster.down()
    assert not folder.exists()
    assert not cgroup.exists()


def test_an_existing_cluster_is_not_changed(state, tmp_path, monkeypatch):
    """Nothing is started or stopped; functions that need an own cluster raise an error."""
    config = tmp_path / "kubeconfig"
    config.write_text("{}")
    monkeypatch.setenv("JOBSETPY_KUBECONFIG", str(config))
    with Cluster(nodes=3) as cluster:
        assert cluster.is_existing
        assert cluster.kubeconfig == cluster.exec_kubeconfig == config
        assert cluster.exec_prefix == []
        assert cluster.env()["KUBECONFIG"] == str(config)
        for act in (cluster.stop_apiserver, cluster.components, lambda: cluster.load_images([])):
            with pytest.raises(ClusterError, match="cluster of our own"):
                act()
    assert config.exists()
    assert not state.exists()


def cgroup_tree(tmp_path, kinds):
    lines = ["tmpfs / tmpfs rw 0 0"]
    for name, kind in kinds.items():
        (tmp_path / name).mkdir()
        lines.append(f"x {tmp_path / name} {kind} rw 0 0")
    mounts = tmp_path / "mounts"
    mounts.write_text("\n".join(lines) + "\n")
    return mounts


def test_old_cgroups_get_a_folder_in_each_hierarchy(tmp_path):
    """A new cpuset is filled, since it accepts no process before; "hybrid" counts as old."""
    mounts = cgroup_tree(tmp_path, {"cpu": "cgroup", "cpuset": "cgroup", "unified": "cgroup2"})
    for file in ("cpuset.cpus", "cpuset.mems"):
        (tmp_path / "cpuset" / file).write_text("0-1")
    _cgroups.create("n", mounts)
    assert (tmp_path / "cpu" / "n").is_dir()
    assert (tmp_path / "cpuset" / "n" / "cpuset.mems").read_text() == "0-1"
    assert not (tmp_path / "unified" / "n").exists()
    paths = {path.parent.name for path in _cgroups.node_paths("n", mounts)}
    assert paths == {"cpu", "cpuset", "unified"}


def test_new_cgroups_need_delegated_controllers(tmp_path):
    """Version 2 has one tree; the error names a missing controller."""
    mounts = cgroup_tree(tmp_path, {"root": "cgroup2"})
    (tmp_path / "root" / "cgroup.controllers").write_text("cpu memory")
    (tmp_path / "root" / "cgroup.subtree_control").write_text("")
    with pytest.raises(ClusterError, match="cpuset"):
        _cgroups.create("n", mounts)
    with pytest.raises(ClusterError, match="no cgroup file system"):
        (tmp_path / "mounts").write_text("")
        _cgroups.create("n", mounts)


def test_folders_that_nodes_hide_are_refused():
    """A node has its own /run, so it could not access a cluster's folder there."""
    with pytest.raises(ClusterError, match="JOBSETPY_STATE_DIR"):
        _nodes.check_places(_nodes.Path("/run/x"), _nodes.Path("/x"))
    with pytest.raises(ClusterError, match="XDG_CACHE_HOME"):
        _nodes.check_places(_nodes.Path("/x"), _nodes.Path("/var/lib/ci/kubelet"))

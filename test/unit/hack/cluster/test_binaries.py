"""Sources of the programs: their order, and verification."""

import hashlib
import http.server
import io
import tarfile
import threading

import pytest

from hack.cluster import _binaries, _build, _download
from hack.cluster._binaries import Binaries
from hack.cluster._download import Sources, UnreachableError
from hack.cluster._errors import ClusterError
from hack.cluster._progress import Progress
from hack.cluster._state import file_lock
from hack.cluster._versions import COREDNS, HELM, KUBERNETES, KUEUE, PROMETHEUS, Release
from support import patience

RELEASE = Release(kubernetes="1.36.3", etcd="3.6.8")


def program(path, version="v1.36.3"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho Kubernetes {version}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def ways(monkeypatch, tmp_path):
    """Fakes of the two ways to obtain a program; the list of their calls."""
    calls = []

    def download(part, release, out, progress):
        calls.append(("download", part))
        if part == "etcd":
            program(out)
        else:
            raise UnreachableError("no network")

    def build(parts, release, targets, cache, progress):
        calls.append(("build", *parts))
        for part in parts:
            program(targets[part])

    monkeypatch.setattr(_binaries, "download", download)
    monkeypatch.setattr(_build, "build", build)
    monkeypatch.setattr(Release, "wanted", classmethod(lambda cls: RELEASE))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.delenv("JOBSETPY_NO_DOWNLOAD", raising=False)
    return calls


def cached(tmp_path, part):
    return tmp_path / "cache" / "jobsetpy" / "bin" / RELEASE.folder(part) / part


def test_download_comes_before_build(ways, tmp_path):
    """A program that cannot be downloaded is built; after one failure no download is tried."""
    wanted = ["etcd", "kube-apiserver", "kubelet"]
    found = Binaries.find(wanted, Progress())
    assert ways == [
        ("download", "etcd"),
        ("download", "kube-apiserver"),
        ("build", "kube-apiserver", "kubelet"),
    ]
    assert found == {part: cached(tmp_path, part) for part in wanted}


def test_assets_come_first_and_are_completed(ways, tmp_path, monkeypatch):
    """KUBEBUILDER_ASSETS has only two of the programs: the others come from the next source."""
    assets = tmp_path / "assets"
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    given = {name: program(assets / name) for name in ("etcd", "kube-apiserver")}
    assert Binaries.find(["etcd", "kube-apiserver"], Progress()) == given
    assert ways == []
    found = Binaries.find(["etcd", "kube-apiserver", "kubelet"], Progress())
    assert found == {**given, "kubelet": cached(tmp_path, "kubelet")}


def test_a_mix_of_releases_is_refused(ways, tmp_path, monkeypatch):
    """A kubelet newer than the API server is not supported, and would fail in unclear ways."""
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    program(tmp_path / "assets" / "kube-apiserver", "v1.30.0")
    with pytest.raises(ClusterError, match=r"is 1\.30"):
        Binaries.find(["kube-apiserver", "kubelet"], Progress())


def test_a_named_folder_needs_all_programs(tmp_path):
    """The error names the missing program."""
    program(tmp_path / "etcd")
    with pytest.raises(ClusterError, match="has no kubelet"):
        Binaries.in_folder(tmp_path, ["etcd", "kubelet"])


def test_the_second_of_two_runs_reports_that_it_waits(tmp_path):
    """Only one run holds the lock, and a function is called in the run that waits."""
    steps, released = [], threading.Event()

    def waiting():
        steps.append("waiting")
        released.set()

    def second():
        with file_lock(tmp_path / "lock", waiting=waiting):
            steps.append("in")

    thread = threading.Thread(target=second)
    with file_lock(tmp_path / "lock"):
        thread.start()
        assert released.wait(patience.scaled(10))
        steps.append("out")
    thread.join(10)
    assert steps == ["waiting", "out", "in"]


@pytest.fixture
def site():
    """Files of a web server on loopback, and sources that use it."""
    files = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = files.get(self.path)
            self.send_response(200 if body is not None else 404)
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        base = f"http://127.0.0.1:{server.server_address[1]}"
        yield files, Sources(kubernetes=base, etcd=base, coredns=base, helm=base, prometheus=base)
        server.shutdown()
        thread.join()


def test_a_download_is_verified(site, tmp_path):
    """A file with the published sum becomes a runnable program; another file is an error."""
    files, sources = site
    path = "/release/v1.36.3/bin/linux/amd64/kubelet"
    files[path] = b"something else"
    files[f"{path}.sha256"] = hashlib.sha256(b"the program").hexdigest().encode()
    kubelet = tmp_path / "kubelet"
    with pytest.raises(ClusterError, match="not used"):
        _download.download("kubelet", RELEASE, kubelet, Progress(), sources)
    assert not list(tmp_path.iterdir())
    files[path] = b"the program"
    _download.download("kubelet", RELEASE, kubelet, Progress(), sources)
    assert kubelet.read_bytes() == b"the program"
    assert kubelet.stat().st_mode & 0o111


def archive(name, content):
    """A compressed archive of one file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


PROMETHEUS_NAME = f"prometheus-{PROMETHEUS}.linux-amd64"
# path of the archive, path of the program in it, path of the sums or of the only sum
ARCHIVES = {
    "etcd": (
        "/v3.6.8/etcd-v3.6.8-linux-amd64.tar.gz",
        "etcd-v3.6.8-linux-amd64/etcd",
        "/v3.6.8/SHA256SUMS",
    ),
    "coredns": (f"/v{COREDNS}/coredns_{COREDNS}_linux_amd64.tgz", "coredns", ""),
    "promtool": (
        f"/v{PROMETHEUS}/{PROMETHEUS_NAME}.tar.gz",
        f"{PROMETHEUS_NAME}/promtool",
        f"/v{PROMETHEUS}/sha256sums.txt",
    ),
    "helm": (f"/helm-v{HELM}-linux-amd64.tar.gz", "linux-amd64/helm", ""),
}


@pytest.mark.parametrize("part", ARCHIVES)
def test_a_program_is_extracted_when_the_sum_of_its_archive_matches(part, site, tmp_path):
    """The sum of the archive is in a list of sums, or in its own file."""
    files, sources = site
    path, inside, sums = ARCHIVES[part]
    files[path] = archive(inside, b"program")
    digest = hashlib.sha256(files[path]).hexdigest()
    listed = f"{digest}  {path.rpartition('/')[2]}\n" if sums else digest
    files[sums or f"{path}.sha256"] = listed.encode()
    _download.download(part, RELEASE, tmp_path / part, Progress(), sources)
    assert (tmp_path / part).read_bytes() == b"program"

    files[path] = b"something else"
    with pytest.raises(ClusterError, match="sha256"):
        _download.download(part, RELEASE, tmp_path / "other", Progress(), sources)


def test_lock_files_are_of_the_pinned_releases():
    """They are the files that `binaries --update-lock` writes for the versions in the code."""
    text = (_build.LOCK / "go.mod").read_text()
    assert f"k8s.io/kubernetes v{Release().kubernetes}" in text
    assert f"go.etcd.io/etcd/server/v3 v{Release().etcd}" in text
    assert f"github.com/coredns/coredns v{COREDNS}" in (_build.DNS_LOCK / "go.mod").read_text()
    helm = (_build.HELM_LOCK / "go.mod").read_text()
    assert f"helm.sh/helm/v4 v{HELM}" in helm
    assert f"k8s.io/client-go v0.{KUBERNETES.split('.', 1)[1]}" in helm
    release = "0.{}{:0>2}.{}".format(*PROMETHEUS.split("."))
    promtool = (_build.PROMETHEUS_LOCK / "go.mod").read_text()
    assert f"github.com/prometheus/prometheus v{release}" in promtool
    kueue = (_build.KUEUE_LOCK / "go.mod").read_text()
    assert f"sigs.k8s.io/kueue v{KUEUE}" in kueue
    for part, package in _build.PACKAGES.items():
        lock = _build.APART.get(part, _build.LOCK)
        assert package == "." or f'_ "{package}"' in (lock / "tools.go").read_text()

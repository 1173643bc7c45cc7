"""Official release files, where the network allows."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import io
import tarfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from ._errors import ClusterError
from ._progress import Progress
from ._versions import COREDNS, HELM, PROMETHEUS, Release

CONNECT_TIMEOUT_S = 5.0
CHUNK = 1 << 20


class UnreachableError(Exception):
    """The release files cannot be had from here; another way may do."""


@dataclass(frozen=True)
class Sources:
    """Where the projects publish."""

    kubernetes: str = "https://dl.k8s.io"
    etcd: str = "https://github.com/etcd-io/etcd/releases/download"
    coredns: str = "https://github.com/coredns/coredns/releases/download"
    helm: str = "https://get.helm.sh"
    prometheus: str = "https://github.com/prometheus/prometheus/releases/download"


def fetch(url: str, progress: Progress | None = None) -> bytes:
    """The file at `url`.

    Raises:
        UnreachableError: no such name or file, no connection, or silence for too long.
    """
    request = urllib.request.Request(url, headers={"User-Agent": "jobsetpy-hack-cluster"})
    out = io.BytesIO()
    try:
        with urllib.request.urlopen(request, timeout=CONNECT_TIMEOUT_S) as response:
            total = int(response.headers.get("Content-Length") or 0)
            while chunk := response.read(CHUNK):
                out.write(chunk)
                if progress and total:
                    progress.update(f"{out.tell() >> 20} of {total >> 20} MiB")
    except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise UnreachableError(f"{url}: {reason}") from error
    return out.getvalue()


def check(data: bytes, expected: str, url: str) -> None:
    """Compare with the published sum.

    Raises:
        ClusterError: it is another file; this is never passed over in silence.
    """
    actual = hashlib.sha256(data).hexdigest()
    if actual != expected:
        raise ClusterError(f"{url}: sha256 is {actual}, published is {expected}; not used")


def download(
    part: str, release: Release, out: Path, progress: Progress, sources: Sources | None = None
) -> None:
    """Get one program and verify it; `out` appears whole or not at all.

    Raises:
        UnreachableError: it cannot be had from here.
        ClusterError: what came is not what was published.
    """
    sources = sources or Sources()
    if part == "etcd":
        data = _etcd(release, sources, progress)
    elif part == "coredns":
        data = _coredns(release, sources, progress)
    elif part == "helm":
        data = _helm(release, sources, progress)
    elif part in {"promtool", "prometheus"}:
        data = _prometheus(part, release, sources, progress)
    else:
        url = (
            f"{sources.kubernetes}/release/v{release.kubernetes}"
            f"/bin/{release.system}/{release.machine}/{part}"
        )
        expected = fetch(f"{url}.sha256").decode().split()[0]  # small: tells soon if this works
        progress.begin(f"downloading {part}")
        data = fetch(url, progress)
        check(data, expected, url)
    new = out.with_name(f"{out.name}.new")
    new.write_bytes(data)
    new.chmod(0o755)
    new.rename(out)


def _etcd(release: Release, sources: Sources, progress: Progress) -> bytes:
    base = f"{sources.etcd}/v{release.etcd}"
    name = f"etcd-v{release.etcd}-{release.system}-{release.machine}"
    expected = _listed(f"{base}/SHA256SUMS", f"{name}.tar.gz")
    return _unpacked("etcd", f"{base}/{name}.tar.gz", expected, f"{name}/etcd", progress)


def _prometheus(part: str, release: Release, sources: Sources, progress: Progress) -> bytes:
    base = f"{sources.prometheus}/v{PROMETHEUS}"
    name = f"prometheus-{PROMETHEUS}.{release.system}-{release.machine}"
    expected = _listed(f"{base}/sha256sums.txt", f"{name}.tar.gz")
    return _unpacked(part, f"{base}/{name}.tar.gz", expected, f"{name}/{part}", progress)


def _coredns(release: Release, sources: Sources, progress: Progress) -> bytes:
    name = f"coredns_{COREDNS}_{release.system}_{release.machine}.tgz"
    url = f"{sources.coredns}/v{COREDNS}/{name}"
    return _unpacked("coredns", url, _beside(url), "coredns", progress)


def _helm(release: Release, sources: Sources, progress: Progress) -> bytes:
    url = f"{sources.helm}/helm-v{HELM}-{release.system}-{release.machine}.tar.gz"
    member = f"{release.system}-{release.machine}/helm"
    return _unpacked("helm", url, _beside(url), member, progress)


def _listed(url: str, name: str) -> str:
    """The checksum of a file in a list of them."""
    sums = fetch(url).decode()
    expected = next((line.split()[0] for line in sums.splitlines() if name in line), None)
    if expected is None:
        raise UnreachableError(f"{url} does not name {name}")
    return expected


def _beside(url: str) -> str:
    """The checksum of a file that has one of its own."""
    return fetch(f"{url}.sha256").decode().split()[0]


def _unpacked(part: str, url: str, expected: str, member: str, progress: Progress) -> bytes:
    """A program out of an archive that is what its checksum says."""
    progress.begin(f"downloading {part}")
    archive = fetch(url, progress)
    check(archive, expected, url)
    return _member(archive, member, url)


def _member(archive: bytes, name: str, url: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar, contextlib.suppress(KeyError):
        member = tar.extractfile(name)
        if member:
            return member.read()
    raise ClusterError(f"{url} holds no {name}")

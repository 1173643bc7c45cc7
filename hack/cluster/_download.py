"""Downloads of official release files."""

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
    """The release files cannot be downloaded; a build may work."""


@dataclass(frozen=True)
class Sources:
    """Addresses of the projects' releases."""

    kubernetes: str = "https://dl.k8s.io"
    etcd: str = "https://github.com/etcd-io/etcd/releases/download"
    coredns: str = "https://github.com/coredns/coredns/releases/download"
    helm: str = "https://get.helm.sh"
    prometheus: str = "https://github.com/prometheus/prometheus/releases/download"


def fetch(url: str, progress: Progress | None = None) -> bytes:
    """Download the file at `url`.

    Raises:
        UnreachableError: no such name or file, no connection, or a timeout.
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
    """Compare a file with its published checksum.

    Raises:
        ClusterError: the checksums differ; the file is not used.
    """
    actual = hashlib.sha256(data).hexdigest()
    if actual != expected:
        raise ClusterError(f"{url}: sha256 is {actual}, published is {expected}; not used")


def download(
    part: str, release: Release, out: Path, progress: Progress, sources: Sources | None = None
) -> None:
    """Download and verify one program; `out` is written atomically.

    Raises:
        UnreachableError: the download failed.
        ClusterError: the file is not the published one.
    """
    url, sums, member = _published(part, release, sources or Sources())
    expected = _expected(sums, url.rpartition("/")[2])  # a small file: fails early
    progress.begin(f"downloading {part}")
    data = fetch(url, progress)
    check(data, expected, url)
    if member:
        data = _member(data, member, url)
    new = out.with_name(f"{out.name}.new")
    new.write_bytes(data)
    new.chmod(0o755)
    new.rename(out)


def _published(part: str, release: Release, sources: Sources) -> tuple[str, str, str]:
    """Addresses of the file and its checksum, and the program's path if it is an archive."""
    system, machine = release.system, release.machine
    if part == "etcd":
        base, name = f"{sources.etcd}/v{release.etcd}", f"etcd-v{release.etcd}-{system}-{machine}"
        return f"{base}/{name}.tar.gz", f"{base}/SHA256SUMS", f"{name}/etcd"
    if part in {"promtool", "prometheus"}:
        base, name = f"{sources.prometheus}/v{PROMETHEUS}", f"prometheus-{PROMETHEUS}"
        name = f"{name}.{system}-{machine}"
        return f"{base}/{name}.tar.gz", f"{base}/sha256sums.txt", f"{name}/{part}"
    if part == "coredns":
        url, member = f"{sources.coredns}/v{COREDNS}/coredns_{COREDNS}_{system}_{machine}.tgz", part
    elif part == "helm":
        url = f"{sources.helm}/helm-v{HELM}-{system}-{machine}.tar.gz"
        member = f"{system}-{machine}/helm"
    else:
        base = f"{sources.kubernetes}/release/v{release.kubernetes}"
        url, member = f"{base}/bin/{system}/{machine}/{part}", ""
    return url, f"{url}.sha256", member


def _expected(sums: str, name: str) -> str:
    """Return a file's checksum, from a list or from a file with only this checksum."""
    lines = fetch(sums).decode().splitlines()
    if sums.endswith(f"{name}.sha256"):
        return lines[0].split()[0]
    expected = next((line.split()[0] for line in lines if name in line), None)
    if expected is None:
        raise UnreachableError(f"{sums} does not name {name}")
    return expected


def _member(archive: bytes, name: str, url: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar, contextlib.suppress(KeyError):
        if member := tar.extractfile(name):
            return member.read()
    raise ClusterError(f"{url} does not contain {name}")

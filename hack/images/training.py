"""Images of real frameworks: PyTorch and JAX from PyPI, and PyTorch 1.13 from Debian's packages.

Another one has only Python: nodes load its 40 MB in a tenth of the time of JAX's image.

Their packages are downloaded once and unpacked into the cache folder, which also has the images;
nothing is installed on this machine. An image has the system's Python, the framework and the shared
libraries that it loads, without files that only its tests need.

PyPI's PyTorch is the usual one. It loads the libraries of CUDA at its import even without a GPU, so
its download has 2.8 GB and its image 3.5 GB. Debian's is only for CPUs: its 300 MB are acceptable
in tests.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from hack.cluster._apt import apt_get
from hack.cluster._state import cache_dir
from hack.images.archive import Image, Layer
from hack.images.basic import base_files, busybox
from hack.images.programs import run
from hack.images.python_root import (
    Interpreter,
    compile_library,
    copy_libraries,
    copy_python,
    parse_ldd,
    run_python,
)
from hack.images.trim import elf_files

DEBIAN_TORCH = "python3-torch"
TORCH_PACKAGES = ("torch==2.15.0", "numpy==2.4.6", "sympy==1.14.0", "networkx==3.6.1")
LAUNCHER_PACKAGES = (
    *("nvidia-resiliency-ext==0.4.1", "nvidia-ml-py==13.615.71", "defusedxml==0.7.1"),
    *("packaging==26.3", "psutil==7.2.2", "pyyaml==6.0.3"),
)
"""``ft_launcher``, for comparison in the benchmark, and its requirements except PyTorch."""

JAX_PACKAGES = (
    *("jax==0.10.2", "jaxlib==0.10.2", "ml_dtypes==0.6.0", "numpy==2.4.6"),
    *("opt_einsum==3.4.0", "scipy==1.17.1"),
)
PLAIN = "plain"
"""Image and program without a framework."""

PACKAGES = "packages/dist-packages"
"""Folder of an image with Python packages."""

LAUNCHER = "launcher"
"""Its subfolder with ``ft_launcher``, which is not on Python's path."""

_DEBIAN_KEPT = re.compile(
    r"(torch|torchgen|numpy|typing_extensions\.py|functorch|astunparse|yaml)($|/)"
)
_NOT_NEEDED = re.compile(
    r"(^|/)(__pycache__|tests|torch/bin/.*[tT]est.*|torch/bin/tutorial.*|torch/include"
    r"|.*\.(h|hpp|pyi|a|pxd))$"
)
_DEBIAN_NOT_NEEDED = re.compile(r"torch/lib/(?!libtorch_global_deps).*$")
_TORCH_NOT_NEEDED = re.compile(  # loaded only by work on a GPU
    r"nvidia/.*/(include|bin|share|libcudnn_.*|libcusolverMg.*|libcufftw.*|libnvblas.*"
    r"|lib(nvperf|pcsampling|checkpoint).*|libnvrtc.*\.alt\..*|libcufile_rdma.*"
    r"|nvshmem_.*|libnvshmem_device.*)$"
    r"|triton/(plugins|backends/[a-z]+/(bin|lib|include))$"
    r"|torch/lib/libcaffe2_nvrtc.*|launcher/nvrx_cupti_module.*|torch/testing/_internal/py312.*$"
)


@dataclass(frozen=True)
class Framework:
    """A framework for which an image can be built.

    Args:
        name: name of the image, and in the benchmark.
        title: name and version for readers.
        fetch: downloads Python packages, and libraries that this machine does not have, into an
            empty folder.
        part: subfolder with the Python packages.
        kept: pattern of paths below that; other paths are left out.
        dropped: pattern of paths that are left out as well.
    """

    name: str
    title: str
    fetch: Callable[[Path], None]
    part: str = ""
    kept: re.Pattern[str] = re.compile("")
    dropped: re.Pattern[str] = re.compile("(?!)")

    @property
    def reference(self) -> str:
        """Reference, such as ``localhost/torch:1``."""
        return f"localhost/{self.name}:1"


def _fetch_debian_torch(target: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise FileNotFoundError(f"{DEBIAN_TORCH} is a Debian package, and apt-get is not installed")
    archives = target.with_name("archives")
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    words = ("install", "--download-only", "--no-install-recommends", "-y", DEBIAN_TORCH)
    for command in (["update", "-qq"], [*words, "-o", f"Dir::Cache::archives={archives}"]):
        apt_get(command)
    for package in sorted(archives.glob("*.deb")):
        run(["dpkg-deb", "-x", str(package), str(target)])


def _fetch_torch(target: Path) -> None:
    _install(target, *TORCH_PACKAGES)
    _install(target / LAUNCHER, "--no-deps", *LAUNCHER_PACKAGES)


def _fetch_jax(target: Path) -> None:
    _install(target, "--no-deps", *JAX_PACKAGES)


def _install(target: Path, *words: str) -> None:
    options = ("--quiet", "--no-compile", "--no-cache-dir", "--target", str(target))
    run([sys.executable, "-m", "pip", "install", *options, *words])


FRAMEWORKS: Mapping[str, Framework] = {
    each.name: each
    for each in (
        Framework("torch", "PyTorch 2.15", _fetch_torch, dropped=_TORCH_NOT_NEEDED),
        Framework(
            "torch1",
            "PyTorch 1.13",
            _fetch_debian_torch,
            part="usr/lib/python3/dist-packages",
            kept=_DEBIAN_KEPT,
            dropped=_DEBIAN_NOT_NEEDED,
        ),
        Framework("jax", "JAX 0.10", _fetch_jax),
        Framework(PLAIN, "no framework", lambda _folder: None),
    )
}


def framework_image(name: str) -> Path:
    """Return the archive of a framework's image; build it if it is not in the cache.

    Raises:
        FileNotFoundError: this machine's Debian does not have the package for its own Python.
        RuntimeError: a download failed.
    """
    framework = FRAMEWORKS[name]
    folder = cache_dir() / "training"
    folder.mkdir(parents=True, exist_ok=True)
    made_by = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    archive = folder / f"{name}-{made_by}.tar"
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _write_image(framework, _packages(framework, folder), archive)
            for old in folder.glob(f"{name}-*.tar"):
                if old != archive:
                    old.unlink()
    return archive


def _packages(framework: Framework, folder: Path) -> Path:
    """Return the folder of the framework's files; download them once."""
    target = folder / f"{framework.name}-packages"
    if not target.is_dir():
        half = target.with_name(f"{target.name}.half")
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir()
        framework.fetch(half)
        half.rename(target)
    return target


def _write_image(framework: Framework, packages: Path, archive: Path) -> None:
    python = Interpreter.default()
    source = packages / framework.part
    with tempfile.TemporaryDirectory(prefix="image-") as place:
        root = Path(place) / "root"
        copy_python(python, root)
        copy_libraries(root)
        compile_library(python, root, 0)
        own = root / PACKAGES
        shutil.copytree(source, own, ignore=_ignored(framework, source))
        _copy_closure(own, root, packages)
        words = ("-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash")
        run_python(python, [*words, "-s", str(root), "-p", "/", str(own)])
        layer = Layer()
        base_files(layer)
        layer.tree(root, "")
        layer.file("bin/busybox", busybox(), mode=0o755)
        for tool in ("sh", "cat", "ls"):
            layer.link(f"bin/{tool}", "busybox")
        environ = {"PYTHONPATH": f"/{PACKAGES}", "OMP_NUM_THREADS": "1"}
        Image(reference=framework.reference, layers=[layer], env=environ).write(archive)


def _ignored(framework: Framework, source: Path) -> Callable[[str, list[str]], set[str]]:
    def is_needed(path: str) -> bool:
        if _NOT_NEEDED.search(path) or framework.dropped.match(path):
            return False
        return bool(framework.kept.match(path))

    def ignore(folder: str, names: list[str]) -> set[str]:
        below = PurePosixPath(Path(folder).relative_to(source).as_posix())
        return {name for name in names if not is_needed(str(below / name))}

    return ignore


def _copy_closure(own: Path, root: Path, packages: Path) -> None:
    """Add the libraries of compiled modules to the loader's default folders."""
    folders = {p.parent for part in ("lib", "usr/lib") for p in packages.glob(f"{part}/**/*.so*")}
    searched = [str(each) for each in sorted(folders) if "dist-packages" not in each.parts]
    searched += map(str, own.glob("*.libs"))  # folders of libraries in wheels
    environ = {**os.environ, "LD_LIBRARY_PATH": ":".join(searched)}
    files = [str(file) for file in elf_files(own)]
    listed = run(["ldd", *files], check=False, env=environ)
    triplet = root / "usr/lib" / f"{os.uname().machine}-linux-gnu"
    triplet.mkdir(parents=True, exist_ok=True)
    for library in {Path(path) for path in parse_ldd(listed)}:
        if library.is_relative_to(own):
            continue
        inner = library.is_relative_to(packages)
        target = triplet / library.name if inner else root / library.relative_to("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(library, target)
            target.chmod(0o755)

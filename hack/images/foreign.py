"""Sources of images for another architecture: Debian's packages and PyPI's wheels for it.

Their own clients, apt-get and pip, download them into the user's cache, once for each set of pins:
apt-get verifies Debian's signatures, pip the hashes of ``requirements``. Nothing of it is installed
or run here: bytecode is the same on every architecture, and this machine's interpreter of the same
minor version compiles it.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from hack.cluster._state import cache_dir
from hack.images.programs import run

from .python_root import Interpreter
from .trim import elf_files

PLATFORMS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
OWNERS = "owners.json"
"""File with the package of each file of the root."""
LIBRARIES = (
    *("libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libexpat1", "libffi8", "libssl3", "libuuid1"),
    *("libbz2-1.0", "liblzma5", "libcrypt1", "libtirpc3", "libnsl2"),
    *("libgssapi-krb5-2", "libkrb5-3", "libk5crypto3", "libkrb5support0", "libcom-err2"),
    *("libkeyutils1",),
)
"""Packages with the interpreter, the standard library, and the libraries of both and of wheels."""

_run = partial(run, error=FileNotFoundError)


@dataclass(frozen=True)
class Sysroot:
    """Unpacked Debian packages for an architecture.

    Args:
        architecture: name of the architecture in images.
        folder: root folder of the packages.
        cache: folder for downloads.
    """

    architecture: str
    folder: Path
    cache: Path

    @classmethod
    def of(cls, architecture: str) -> Sysroot:
        """Return the root in the cache; download it if it is missing.

        Raises:
            FileNotFoundError: apt-get or dpkg-deb is missing, or a package is not available.
        """
        if architecture not in MACHINES:
            raise FileNotFoundError(f"no {architecture!r}; supported: {', '.join(MACHINES)}")
        cache = cache_dir() / "images" / architecture
        folder = cache / "root"
        if not (cache / OWNERS).exists():
            cache.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cache) as place:
                _fetch_packages(architecture, Path(place))
                shutil.rmtree(folder, ignore_errors=True)  # left by an interrupted download
                (Path(place) / "root").rename(folder)
                (Path(place) / OWNERS).rename(cache / OWNERS)
        return cls(architecture, folder, cache)

    def owner(self, path: str) -> tuple[str, str, str] | None:
        """Return name, version and architecture of the package of an image's file."""
        owners = _owners(self.cache / OWNERS)
        for known in (path, f"usr/{path}", path.removeprefix("usr/")):
            if found := owners.get(known):
                name, version, architecture = found
                return name, version, architecture
        return None

    @property
    def machine(self) -> str:
        """Name of the architecture in file names and tools."""
        return MACHINES[self.architecture]

    @property
    def interpreter(self) -> Interpreter:
        """Its Python, of the same minor version as this one."""
        name = _python()
        return Interpreter(self.folder / "usr/bin" / name, self.folder / "usr/lib" / name)

    def tool(self, name: str) -> str:
        """Return the cross compiler, or another tool for the architecture.

        Raises:
            FileNotFoundError: it is not installed.
        """
        own = f"{self.machine}-linux-gnu-{name}"
        if shutil.which(own) is None:
            package = f"gcc-{self.machine.replace('_', '-')}-linux-gnu"
            raise FileNotFoundError(f"{own} is needed: apt-get install {package}")
        return own

    def wheels(self, requirements: Path) -> list[Path]:
        """Return the wheels that a file of requirements pins, for this architecture.

        Raises:
            FileNotFoundError: a wheel is not available.
        """
        digest = hashlib.sha256(requirements.read_bytes()).hexdigest()[:16]
        folder = self.cache / f"wheels-{digest}"
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=self.cache) as place:
                platforms = [f"--platform={each}_{self.machine}" for each in PLATFORMS]
                words = ["-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
                words += ["--only-binary=:all:", "--require-hashes", "--implementation=cp"]
                version = ".".join(map(str, sys.version_info[:2]))
                words += [*platforms, "--python-version", version, "-r", str(requirements)]
                _run([sys.executable, *words, "-d", f"{place}/wheels"])
                Path(place, "wheels").rename(folder)
        return sorted(folder.glob("*.whl"))

    def libraries(self, folders: Sequence[Path]) -> dict[Path, Path]:
        """Return the shared libraries of programs and modules under ``folders``.

        Returns:
            Files, by their path in the image.

        Raises:
            FileNotFoundError: a library is in none of the packages.
        """
        own = {file.name for folder in folders for file in folder.rglob("*.so*")}
        ahead = [file for folder in folders for file in elf_files(folder)]
        found: dict[Path, Path] = {}
        while ahead:
            file = ahead.pop()
            for name in needed(file):
                if name in own:
                    continue  # in the wheel itself
                place, source = self._find(name)
                if place not in found:
                    found[place] = source
                    ahead.append(source)
        return found

    def _find(self, name: str) -> tuple[Path, Path]:
        triplet = f"{self.machine}-linux-gnu"
        for below in (f"lib/{triplet}", f"usr/lib/{triplet}", "lib", "lib64"):
            source = self.folder / below / Path(name).name
            if source.exists():
                # Programs name their loader's path; other libraries are in the usual folders.
                place = name.lstrip("/") if name.startswith("/") else f"{below}/{name}"
                return Path(place), source.resolve()
        raise FileNotFoundError(f"no package for {self.architecture} has {name}")


def needed(file: Path) -> Iterator[str]:
    """Libraries of a program or module, and the path of its loader."""
    words = ["readelf", "--wide", "--dynamic", "--program-headers", str(file)]
    text = run(words, check=False)
    yield from re.findall(r"\(NEEDED\)\s+Shared library: \[(.+)\]", text)
    yield from re.findall(r"program interpreter: (/.+)\]", text)


def unpack(wheels: Sequence[Path], folder: Path) -> None:
    """Unpack wheels as an installation would."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if ".data/" not in name]
            archive.extractall(folder, names)


@cache
def _owners(file: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(file.read_text())
    return found


def _python() -> str:
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def _fetch_packages(architecture: str, place: Path) -> None:
    """Download and unpack packages with separate apt lists; the machine's apt is not changed."""
    for name in ("state/lists/partial", "cache/archives/partial", "debs", "root"):
        (place / name).mkdir(parents=True)
    (place / "state/status").touch()
    python = _python()
    names = [f"{python}-minimal", f"lib{python}-minimal", f"lib{python}-stdlib", *LIBRARIES]
    options = [
        *("-qq", "-o", f"APT::Architecture={architecture}"),
        *("-o", f"APT::Architectures::={architecture}", "-o", f"Dir::State={place}/state"),
        *("-o", f"Dir::State::status={place}/state/status", "-o", f"Dir::Cache={place}/cache"),
        *("-o", "APT::Sandbox::User=root"),
    ]
    _run(["apt-get", *options, "update"])
    _run(["apt-get", *options, "download", *names], cwd=place / "debs")
    owners: dict[str, list[str]] = {}
    for package in sorted((place / "debs").glob("*.deb")):
        _run(["dpkg-deb", "--extract", str(package), str(place / "root")])
        fields = _run(["dpkg-deb", "--field", str(package), "Package", "Version", "Architecture"])
        values = [line.partition(": ")[2] for line in sorted(fields.splitlines())]
        architecture, name, version = values
        for line in _run(["dpkg-deb", "--contents", str(package)]).splitlines():
            path = line.split(None, 5)[5].partition(" -> ")[0].removeprefix("./")
            if not path.endswith("/"):
                owners[path] = [name, version, architecture]
    (place / OWNERS).write_text(json.dumps(owners))

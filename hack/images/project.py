"""The project's images, manager and agent, as the Containerfile defines them.

An image contains copies of installed files: an interpreter, the libraries that ``requirements``
pins, and our own wheel, built from the sources. The three layers are ordered by how often they
change, so that a node with the last release pulls a megabyte for the next one.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from . import trim
from .archive import Image, Layer, architecture
from .basic import base_files
from .containerfile import Target, read_target
from .foreign import Sysroot, unpack
from .python_root import (
    NOT_FOR_AGENT,
    Interpreter,
    compile_library,
    copy_libraries,
    copy_python,
    run_python,
)

PROJECT = Path(__file__).resolve().parents[2]
PACKAGE = "jobsetpy"
PINS: Mapping[str, str] = {"manager": "runtime.txt", "agent": "agent.txt"}
NAMES = tuple(PINS)
APP = "app"
TEST_RUN = "JOBSETPY_TEST_RUN"
"""Environment variable with the name of a test run, whose processes share images."""
SUPERVISE_SOURCE = Path(__file__).with_name("supervise.c")
# The same switches as in the Containerfile.
FREESTANDING = (
    *("-Os", "-s", "-static", "-nostdlib", "-ffreestanding", "-fno-builtin"),
    *("-fno-stack-protector", "-fno-asynchronous-unwind-tables", "-fno-pie", "-no-pie"),
)


@dataclass(frozen=True)
class Built:
    """A written image, with the identifiers of `archive.Written`."""

    name: str
    reference: str
    path: Path
    image_id: str
    digest: str
    bytes: int
    files: int
    file_bytes: int


@dataclass(frozen=True, kw_only=True)
class Source:
    """Sources of images; the defaults are for images that run on this machine."""

    project: Path = PROJECT
    wheel: Path | None = None  # None: built from the sources
    interpreter: Interpreter | None = None  # None: the default of `Interpreter`
    entrypoint: Sequence[str] | None = None  # None: the Containerfile's
    sysroot: Sysroot | None = None  # of another architecture; None: files installed here


@dataclass(frozen=True, kw_only=True)
class Release:
    """Labels of a release; images that run on this machine have none."""

    prefix: str = "localhost/"
    tag: str = "dev"
    revision: str = ""
    created: int = 0  # Unix time
    compress: bool = False

    def reference(self, name: str) -> str:
        """Return an image's reference, such as ``localhost/jobsetpy-manager:dev``."""
        return f"{self.prefix}{PACKAGE}-{name}:{self.tag}"


def build(
    name: str, out: Path, source: Source | None = None, release: Release | None = None
) -> Built:
    """Write ``out/jobsetpy-NAME.tar``.

    Args:
        name: ``manager`` or ``agent``.
        out: folder for the archive.
        source: sources of the image.
        release: labels of the release.

    Raises:
        ValueError: unknown image, or an installed version is not the pinned one.
        FileNotFoundError: something to be copied is not installed here.
    """
    if name not in PINS:
        raise ValueError(f"unknown image {name!r}; use {', '.join(NAMES)}")
    source, release = source or Source(), release or Release()
    python = source.interpreter or Interpreter.default()
    with tempfile.TemporaryDirectory(prefix="image-") as place:
        wheel = source.wheel or build_wheel(source.project, Path(place))
        version = wheel.name.split("-")[1]
        said = {"VERSION": version, "REVISION": release.revision}
        target = read_target(source.project / "Containerfile", name, said)
        making = _Making(Path(place), source.project, wheel, python, target, source.sysroot)
        layers = making.layers(name)
        path = out / f"{PACKAGE}-{name}.tar"
        image = Image(
            reference=release.reference(name),
            layers=layers,
            entrypoint=source.entrypoint or target.entrypoint,
            command=target.command,
            user=target.user,
            env=target.env,
            labels=target.labels,
            created=release.created,
            architecture=source.sysroot.architecture if source.sysroot else architecture(),
            compress=release.compress,
        )
        written = image.write(path)
        return Built(
            name=name,
            reference=image.reference,
            path=path,
            image_id=written.image_id,
            digest=written.digest,
            bytes=path.stat().st_size,
            files=sum(len(layer.entries) for layer in layers),
            file_bytes=sum(layer.size() for layer in layers),
        )


@dataclass(frozen=True)
class _Making:
    """Builder of an image."""

    place: Path
    project: Path
    wheel: Path
    python: Interpreter
    target: Target
    sysroot: Sysroot | None = None

    def layers(self, name: str) -> list[Layer]:
        """Return the layers: interpreter and system libraries; dependencies; our own package."""
        folders = [self.place / each for each in ("root", "libraries", "own")]
        root, libraries, own = folders
        source = self.sysroot.interpreter if self.sysroot else self.python
        copy_python(source, root, not_needed=NOT_FOR_AGENT if name == "agent" else ())
        requirements = self.project / "requirements" / PINS[name]
        if self.sysroot:
            unpack(self.sysroot.wheels(requirements), libraries)
        else:
            for distribution in pinned(requirements):
                copy_distribution(distribution, libraries)
        unpack_wheel(self.wheel, own, self.target.packages)
        if name == "agent":
            compiler = self.sysroot.tool("gcc") if self.sysroot else None
            (own / "supervise").write_bytes(compiled(SUPERVISE_SOURCE, compiler))
            (own / "supervise").chmod(0o755)
        for folder in (libraries, own):
            self._trim(folder)
        # Libraries of compiled modules belong to the lowest layer, too.
        if self.sysroot:
            for place, library in self.sysroot.libraries([root, libraries]).items():
                (root / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(library, root / place)
                (root / place).chmod(0o755)
        else:
            copy_libraries(root, [root, libraries])
        trim.strip_symbols(root, self._strip())
        compile_library(self.python, root, self.target.optimize)
        layers = [Layer(), Layer(), Layer()]
        base_files(layers[0])
        for layer, folder, at in zip(layers, folders, ("", APP, APP), strict=True):
            layer.tree(folder, at)
        return layers

    def _trim(self, folder: Path) -> None:
        """Trim like the Containerfile: with the image's interpreter, at the entry point's level."""
        switches = [f"-{'O' * self.target.optimize}"] if self.target.optimize else []
        words = [trim.__file__, str(folder), "--at", f"/{APP}", "--strip", self._strip()]
        run_python(self.python, [*switches, *words])

    def _strip(self) -> str:
        return self.sysroot.tool("strip") if self.sysroot else "strip"


def build_wheel(project: Path, out: Path) -> Path:
    """Build our own package as a wheel with the backend of ``pyproject.toml``.

    Raises:
        FileNotFoundError: the backend is not installed.
    """
    try:
        from hatchling.builders.wheel import WheelBuilder
    except ModuleNotFoundError as error:
        raise FileNotFoundError("hatchling is not installed; make setup installs it") from error
    builder = WheelBuilder(str(project))
    return Path(next(builder.build(directory=str(out), versions=["standard"])))


def unpack_wheel(wheel: Path, folder: Path, parts: Sequence[str] | None) -> None:
    """Unpack our own wheel with its metadata; of the package, only the target's parts, if any."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            inner = name.removeprefix(f"{PACKAGE}/")
            wanted = parts is None or inner == name or inner.split("/")[0] in parts
            if wanted:
                archive.extract(name, folder)


def compiled(source: Path, cross: str | None = None) -> bytes:
    """Compile a static program without a C library.

    Args:
        source: source in C.
        cross: compiler for another architecture.

    Raises:
        FileNotFoundError: no C compiler is installed.
    """
    compiler = cross or shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
    if compiler is None:
        raise FileNotFoundError("a C compiler is needed for the agent: apt-get install gcc")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "program"
        subprocess.run(
            [compiler, *FREESTANDING, "-o", str(out), str(source)],
            check=True,
            capture_output=True,
            timeout=60,
        )
        return out.read_bytes()


def pinned(requirements: Path) -> list[metadata.Distribution]:
    """Return the installed distributions that a file of pinned requirements names for this machine.

    Raises:
        FileNotFoundError: a distribution is not installed, or in another version.
    """
    found = []
    for need in pins(requirements):
        wanted = str(need.specifier).removeprefix("==")
        try:
            distribution = metadata.distribution(need.name)
        except metadata.PackageNotFoundError:
            have = "nothing"
        else:
            have = distribution.version
        if have != wanted:
            raise FileNotFoundError(
                f"{requirements.name} pins {need.name} {wanted}, installed is {have}: make setup"
            )
        found.append(distribution)
    return found


def pins(requirements: Path) -> Iterator[Requirement]:
    """Requirements of a file that apply to this machine, without their hashes."""
    for line in requirements.read_text().splitlines():
        if line and not line.startswith((" ", "#")):
            need = Requirement(line.removesuffix("\\").strip())
            if need.marker is None or need.marker.evaluate():
                yield need


def copy_distribution(distribution: metadata.Distribution, target: Path) -> None:
    """Copy the files that an installed distribution's metadata lists."""
    for file in distribution.files or []:
        if file.parts[0] == ".." or "__pycache__" in file.parts:
            continue  # ".." is for scripts outside of site-packages
        place = target / Path(*file.parts)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(distribution.locate_file(file)), place)

"""The project's own images: the manager's and the agent's."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from .archive import Image, Layer
from .basic import base_files
from .containerfile import Target, read_target
from .python_root import (
    NOT_FOR_AGENT,
    Interpreter,
    compile_all,
    copy_libraries,
    copy_python,
    keep_source,
    strip_symbols,
)

PROJECT = Path(__file__).resolve().parents[2]
PACKAGE = "jobsetpy"
AGENT_DISTRIBUTIONS = ("msgspec", "h11")
NAMES = ("manager", "agent")
APP = "app"
SUPERVISE_SOURCE = Path(__file__).with_name("supervise.c")
# The same switches as in the Containerfile.
FREESTANDING = (
    *("-Os", "-s", "-static", "-nostdlib", "-ffreestanding", "-fno-builtin"),
    *("-fno-stack-protector", "-fno-asynchronous-unwind-tables", "-fno-pie", "-no-pie"),
)


@dataclass(frozen=True)
class Built:
    """A written image."""

    name: str
    path: Path
    image_id: str
    bytes: int


def reference(name: str) -> str:
    return f"localhost/jobsetpy-{name}:dev"


def build(
    name: str,
    out: Path,
    *,
    interpreter: Interpreter | None = None,
    entrypoint: Sequence[str] | None = None,
    project: Path = PROJECT,
) -> Built:
    """Write ``out/jobsetpy-NAME.tar``.

    Args:
        name: ``manager`` or ``agent``.
        out: the folder for it.
        interpreter: the Python that is copied; the default is explained there.
        entrypoint: in place of the Containerfile's.
        project: where the sources and the Containerfile are.

    Raises:
        ValueError: no such image.
        FileNotFoundError: something to be copied is not installed here.
    """
    if name not in NAMES:
        raise ValueError(f"no image {name!r}; there are {', '.join(NAMES)}")
    target = read_target(project / "Containerfile", name)
    python = interpreter or Interpreter.default()
    agent = name == "agent"
    with tempfile.TemporaryDirectory(prefix="image-") as place:
        root = Path(place) / "root"
        copy_python(python, root, not_needed=NOT_FOR_AGENT if agent else ())
        distributions = AGENT_DISTRIBUTIONS if agent else requirements_of(PACKAGE)
        for distribution in distributions:
            copy_distribution(distribution, root / APP)
        copy_package(project / "src" / PACKAGE, root / APP / PACKAGE, target)
        if agent:
            (root / APP / "supervise").write_bytes(compiled(SUPERVISE_SOURCE))
            (root / APP / "supervise").chmod(0o755)
        copy_libraries(root)
        strip_symbols(root)
        library = f"usr/local/lib/{python.version}"
        compile_all(python, root, [library, APP], target.optimize)
        base, app = Layer(), Layer()
        base_files(base)
        base.tree(root, "", keep=lambda path: path.parts[0] != APP and keep_source(path))
        app.tree(root / APP, APP, keep=keep_source)
        path = out / f"{PACKAGE}-{name}.tar"
        image = Image(
            reference=reference(name),
            layers=[base, app],
            entrypoint=entrypoint or target.entrypoint,
            command=target.command,
            user=target.user,
            env=target.env,
        )
        image_id = image.write(path)
    return Built(name, path, image_id, path.stat().st_size)


def compiled(source: Path) -> bytes:
    """A static program without a C library.

    Raises:
        FileNotFoundError: there is no C compiler here.
    """
    compiler = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
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


def requirements_of(name: str) -> list[str]:
    """The distributions `name` needs at run time, itself not included, from what is installed.

    Raises:
        metadata.PackageNotFoundError: one of them is not installed.
    """
    found: set[str] = set()
    ahead = [Requirement(name)]
    while ahead:
        for text in metadata.requires(ahead.pop().name) or []:
            need = Requirement(text)
            wanted = need.marker is None or need.marker.evaluate({"extra": ""})
            if wanted and need.name.lower() not in found:
                found.add(need.name.lower())
                ahead.append(need)
    return sorted(found)


def copy_distribution(name: str, target: Path) -> None:
    """Copy an installed distribution's modules, by its own list of files."""
    distribution = metadata.distribution(name)
    for file in distribution.files or []:
        skip = {"__pycache__", "test", "tests"} & set(file.parts)
        if skip or file.parts[0] == ".." or not keep_source(file):
            continue  # ".." is a script outside of site-packages
        place = target / Path(*file.parts)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(distribution.locate_file(file)), place)


def copy_package(source: Path, place: Path, target: Target) -> None:
    """Copy our own package, or the parts of it that the target says."""
    ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
    if target.packages is None:
        shutil.copytree(source, place, ignore=ignore)
        return
    place.mkdir(parents=True)
    for part in target.packages:
        if (source / part).is_dir():
            shutil.copytree(source / part, place / part, ignore=ignore)
        else:
            shutil.copyfile(source / part, place / part)

"""Materials of a release: a CycloneDX SBOM for each image and the wheel, and their provenance.

An image's SBOM is read from the image itself: distributions by their metadata in it, the
interpreter and shared libraries by their files, with the Debian packages that these come from. The
provenance is an in-toto statement with SLSA's predicate. Both are the same bytes for the same
release: dated by the commit, and with a serial number made of what is in them.
"""

from __future__ import annotations

import email.message
import hashlib
import json
import re
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.parser import Parser
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.utils import canonicalize_name

from hack.images.archive import read
from hack.images.project import PACKAGE, pins

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
PYTHON_FILES = "usr/local/"
OWN_FILES = "app/"
PINNED = "jobsetpy:pinned-sha256"


class Released(Protocol):
    """Properties of a release that an SBOM describes."""

    @property
    def version(self) -> str: ...

    @property
    def created(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Material:
    """A component of an artifact."""

    name: str
    version: str
    purl: PackageURL
    licence: str = ""
    pinned: Sequence[str] = ()  # SHA-256 of the archives that the requirements allow
    files: Mapping[str, str] = field(default_factory=dict)  # SHA-256 by path in the image
    optional: bool = False

    @property
    def component(self) -> Component:
        """Return the component as an SBOM entry."""
        component = Component(
            name=self.name,
            version=self.version,
            purl=self.purl,
            bom_ref=self.purl.to_string(),
            type=ComponentType.LIBRARY,
            scope=ComponentScope.OPTIONAL if self.optional else ComponentScope.REQUIRED,
            properties=[Property(name=PINNED, value=each) for each in self.pinned],
            components=[
                Component(name=path, bom_ref=path, type=ComponentType.FILE, hashes=[sha256(digest)])
                for path, digest in self.files.items()
            ],
        )
        if self.licence:
            component.licenses.add(_licence(self.licence))
        return component


def sha256(digest: str) -> HashType:
    """Return a hash in the format of SBOMs."""
    return HashType(alg=HashAlgorithm.SHA_256, content=digest)


def _licence(text: str) -> Any:
    made = LicenseFactory()
    if re.search(r" (AND|OR|WITH) ", text):
        return LicenseExpression(text)
    return made.make_from_string(text)


# ---- components ----------------------------------------------------------------------------------


def pinned_hashes(requirements: Path) -> dict[str, tuple[str, list[str]]]:
    """Version, and SHA-256 values of allowed archives, of each name in a file of requirements."""
    wanted = {canonicalize_name(need.name): need for need in pins(requirements)}
    found = {}
    for entry in re.split(r"\n(?=\S)", requirements.read_text().strip()):
        name = canonicalize_name(re.split(r"[=\s;]", entry, maxsplit=1)[0])
        if name in wanted:
            version = str(wanted[name].specifier).removeprefix("==")
            found[name] = (version, sorted(re.findall(r"--hash=sha256:([0-9a-f]{64})", entry)))
    return found


def of_requirements(requirements: Path, required: Path) -> list[Material]:
    """Return the pins of a file; those that are not in ``required`` are optional."""
    needed = pinned_hashes(required)
    return [
        Material(
            name=name,
            version=version,
            purl=PackageURL("pypi", name=name, version=version),
            pinned=hashes,
            optional=name not in needed,
        )
        for name, (version, hashes) in pinned_hashes(requirements).items()
    ]


Owner = Callable[[str], tuple[str, str, str] | None]
"""Name, version and architecture of the Debian package of a file, by its path."""


def of_image(
    archive: Path, requirements: Path, python: Material, owner: Owner | None = None
) -> list[Material]:
    """Return an image's components: distributions, the interpreter, system libraries.

    Args:
        archive: image archive, as ``hack.images`` writes it.
        requirements: file with the pinned requirements of the image.
        python: the interpreter of the image.
        owner: function from a shared library to its package; default: this system's packages.

    Raises:
        ValueError: the image contains a distribution that is not pinned.
    """
    _, files = read(archive)
    allowed = pinned_hashes(requirements)
    found = [python]
    for path in sorted(files):
        if re.fullmatch(rf"{OWN_FILES}[^/]+\.dist-info/METADATA", path):
            said = Parser().parsestr(files[path].decode(), headersonly=True)
            name, version = canonicalize_name(said["Name"]), said["Version"]
            if name != PACKAGE and name not in allowed:
                raise ValueError(f"{archive.name} has {name} {version}, which is not pinned")
            found.append(
                Material(
                    name=name,
                    version=version,
                    purl=PackageURL("pypi", name=name, version=version),
                    licence=licence_of(said),
                    pinned=allowed[name][1] if name in allowed else (),
                )
            )
    system = [
        path
        for path in files
        if not path.startswith((OWN_FILES, PYTHON_FILES, "etc/")) and ".so" in path
    ]
    return found + of_debian({path: _sha256(files[path]) for path in sorted(system)}, owner)


def licence_of(said: email.message.Message) -> str:
    """Return the licence in a distribution's metadata, in a few words; "" if it has none."""
    if expression := said.get("License-Expression"):
        return str(expression)
    stated = str(said.get("License") or "").strip()
    if stated and "\n" not in stated and len(stated) < 60:
        return stated
    kinds = [str(each) for each in said.get_all("Classifier", []) if "License ::" in str(each)]
    return kinds[0].rpartition(":: ")[2] if kinds else ""


def of_debian(files: Mapping[str, str], owner: Owner | None = None) -> list[Material]:
    """Return the packages of files; a file without a package is its own component.

    Args:
        files: SHA-256 in the image, by path without the leading slash.
        owner: function from a file to its package; default: this system's packages.
    """
    by_package: dict[tuple[str, str, str], dict[str, str]] = {}
    for path, digest in files.items():
        package = (owner or owner_here)(path) or (path, "", "")
        by_package.setdefault(package, {})[path] = digest
    found = []
    for (name, version, architecture), its in by_package.items():
        if version:
            purl = PackageURL("deb", "debian", name, version, {"arch": architecture})
        else:
            version = next(iter(its.values()))[:12]
            purl = PackageURL("generic", name=Path(name).name, version=version)
        found.append(Material(name=name, version=version, purl=purl, files=its))
    return found


def owner_here(path: str) -> tuple[str, str, str] | None:
    """The package of this system that a file belongs to."""
    package = package_of(path)
    version, architecture = _dpkg_version(package)
    return (package.partition(":")[0], version, architecture) if version else None


@cache
def package_of(path: str) -> str:
    """The Debian package that a file of this system belongs to; "" if none does."""
    if shutil.which("dpkg-query") is None:
        return ""
    for known in (f"/{path}", f"/usr/{path}", f"/{path.removeprefix('usr/')}"):
        done = _run("dpkg-query", "--search", known)
        if done and not done.startswith("diversion"):
            return done.partition(": ")[0].partition(", ")[0]
    return ""


@cache
def _dpkg_version(package: str) -> tuple[str, str]:
    if not package or shutil.which("dpkg-query") is None:
        return "", ""
    said = _run("dpkg-query", "--show", "--showformat=${Version} ${Architecture}", package)
    version, _, architecture = said.partition(" ")
    return version, architecture


def of_python(program: Path, root: Path = Path("/"), owner: Owner | None = None) -> Material:
    """The interpreter: Debian's package, or what the program says of itself.

    Args:
        program: the interpreter.
        root: of the system that it is of.
        owner: tells whose it is; this system's packages if absent.
    """
    files = {str(program.relative_to(root)): _sha256(program.read_bytes())}
    (found,) = of_debian(files, owner)
    if found.purl.type == "deb":
        return found
    version = _run(
        str(program), "-I", "-S", "-c", "import sys; print(*sys.version_info[:3], sep='.')"
    )
    purl = PackageURL("generic", name="python", version=version.strip())
    return Material(
        name="python", version=version.strip(), purl=purl, licence="PSF-2.0", files=files
    )


def of_tools(names: Iterable[str]) -> list[Material]:
    """Return the installed tools, such as compilers, that affect the output."""
    found = [Path(path).resolve() for name in names if (path := shutil.which(name))]
    return of_debian({str(path).lstrip("/"): _sha256(path.read_bytes()) for path in found})


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout.strip() if done.returncode == 0 else ""


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# ---- output --------------------------------------------------------------------------------------


def sbom(
    subject: Path, kind: ComponentType, released: Released, made_of: Sequence[Material]
) -> str:
    """Return the SBOM of a file in CycloneDX's JSON format."""
    digest = _sha256(subject.read_bytes())
    purl = PackageURL("pypi", name=PACKAGE, version=released.version)
    whole = Component(
        name=subject.name,
        version=released.version,
        type=kind,
        bom_ref=subject.name,
        hashes=[sha256(digest)],
        licenses=[_licence("Apache-2.0")],
        purl=purl if subject.suffix == ".whl" else None,
    )
    parts = [each.component for each in made_of]
    bom = Bom(components=parts, serial_number=uuid.uuid5(uuid.NAMESPACE_OID, digest))
    bom.metadata.component = whole
    bom.metadata.timestamp = datetime.fromtimestamp(released.created, UTC)
    bom.register_dependency(whole, parts)
    made = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6)
    return str(made.output_as_string(indent=2)) + "\n"


def provenance(
    subjects: Iterable[Path],
    *,
    revision: str,
    parameters: Mapping[str, str],
    inputs: Mapping[str, str],
    made_of: Iterable[Material],
) -> str:
    """Return the provenance of files, as an in-toto statement with SLSA's predicate.

    Args:
        subjects: the files.
        revision: the commit.
        parameters: options of the caller.
        inputs: SHA-256 of the commit's files that define the contents, by path.
        made_of: components, and the tools that made them.
    """
    materials: dict[str, dict[str, Any]] = {}
    for each in made_of:
        entry: dict[str, Any] = {"uri": each.purl.to_string()}
        if each.pinned:
            entry["annotations"] = {"pinnedSha256": list(each.pinned)}
        elif each.files:
            entry["annotations"] = {"filesSha256": dict(sorted(each.files.items()))}
        materials.setdefault(entry["uri"], entry)
    source = {"uri": f"git+commit:{revision}", "digest": {"gitCommit": revision.partition("-")[0]}}
    files = [{"uri": f"file:{path}", "digest": {"sha256": inputs[path]}} for path in sorted(inputs)]
    statement = {
        "_type": STATEMENT,
        "subject": [
            {"name": path.name, "digest": {"sha256": _sha256(path.read_bytes())}}
            for path in sorted(subjects)
        ],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": "make release",
                "externalParameters": {"revision": revision, **parameters},
                "resolvedDependencies": [
                    source,
                    *files,
                    *(materials[u] for u in sorted(materials)),
                ],
            },
            "runDetails": {"builder": {"id": "hack/release/release.py"}},
        },
    }
    return json.dumps(statement, indent=2) + "\n"

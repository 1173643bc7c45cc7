"""``make release``: all files of a release, in ``dist/``; builds are reproducible.

Wheel and source archive, the images, the manifests as single files with the images' tags, the Helm
chart, the release notes, SBOMs and the provenance, and SHA256SUMS of all of them, which is signed
if a key is given. Everything is made from an export of the commit, so that no other files get in,
and dated by the commit. The result also depends on the installed Python, the installed compiled
libraries (``requirements`` pins these), and zlib.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

from hack.generate.kustomize import render
from hack.images import project
from hack.images.archive import architecture, join
from hack.images.foreign import MACHINES, Sysroot
from hack.images.python_root import Interpreter
from hack.release import sbom, sign

ROOT = Path(__file__).resolve().parents[2]
SUMS = "SHA256SUMS"
SIGNATURE = f"{SUMS}.sig"
MANIFESTS = {
    "install.yaml": "default",
    "install-without-webhooks.yaml": "without-webhooks",
    "crds.yaml": "crd",
    "agent-account.yaml": "agent/account",
    "agent-policy.yaml": "agent/policy",
}
"""Manifests of a release, and the folders of ``config/`` that they are rendered from; standalone
folders are added under their own names."""
SBOM = ".cdx.json"
GZIP_LEVEL = 9
UNVERSIONED = re.compile(r"\bjobsetpy-(?:manager|agent):(?:latest|dev)\b")


class ReleaseError(Exception):
    """A release is impossible; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Commit:
    """Sources of a release: an export of a commit or of the working tree."""

    tree: Path
    revision: str
    created: int  # Unix time
    version: str


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the caller."""

    out: Path
    prefix: str = "localhost/"
    allow_dirty: bool = False
    parts: Sequence[str] = ()
    key: Path | None = None
    architectures: Sequence[str] = ()  # of the images; empty: this machine's

    @property
    def images_for(self) -> Sequence[str]:
        """Architectures of the images."""
        return self.architectures or (architecture(),)


def main(argv: Sequence[str] | None = None) -> int:
    """Make the release; return the exit status."""
    parser = argparse.ArgumentParser(description="Make a release, reproducibly.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument(
        "--image-prefix",
        default=os.environ.get("IMAGE_PREFIX", "localhost/"),
        help="prefix of the images' names: a registry and a folder in it ($IMAGE_PREFIX)",
    )
    parser.add_argument(
        "--allow-dirty",
        action="store_true",
        default=os.environ.get("ALLOW_DIRTY", "") not in {"", "0"},
        help="release the working tree with uncommitted changes, for a trial ($ALLOW_DIRTY=1)",
    )
    parser.add_argument(
        "--part", action="append", choices=list(PARTS), help="make only this, without SHA256SUMS"
    )
    parser.add_argument(
        "--key",
        type=Path,
        default=Path(os.environ["SIGN_KEY"]) if os.environ.get("SIGN_KEY") else None,
        help="private key in PEM that signs SHA256SUMS ($SIGN_KEY)",
    )
    parser.add_argument(
        "--arch",
        action="append",
        choices=list(MACHINES),
        help="of the images; several also make an image index; default: this machine's",
    )
    given = parser.parse_args(argv)
    if given.key and given.part:
        parser.error("--key signs SHA256SUMS, which --part does not make")
    options = Options(
        out=given.out,
        prefix=given.image_prefix and given.image_prefix.rstrip("/") + "/",
        allow_dirty=given.allow_dirty,
        parts=given.part or (),
        key=given.key,
        architectures=sorted(set(given.arch or ())),
    )
    begun = time.monotonic()
    try:
        made = release(options)
    except (ReleaseError, FileNotFoundError, ValueError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for path in made:
        print(f"  {path.stat().st_size / 1e6:8.2f} MB  {path.name}")
    print(f"== {len(made)} files in {options.out}, {time.monotonic() - begun:.0f} s")
    return 0


def release(options: Options) -> list[Path]:
    """Make all files in ``options.out``; return them, sorted by name.

    Files of an earlier release are deleted if its SHA256SUMS lists them; others are kept.

    Raises:
        ReleaseError: the working tree or the version does not allow a release.
        FileNotFoundError: something to be copied is not installed here.
        ValueError: the manifests cannot be rendered.
    """
    signer = sign.Signer.of(options.key) if options.key else None
    with tempfile.TemporaryDirectory(prefix="release-") as place:
        with step("export of the commit"):
            commit = export(Path(place, "tree"), allow_dirty=options.allow_dirty)
        print(f"   {commit.version}, revision {commit.revision}", flush=True)
        new = Path(place, "dist")
        new.mkdir()
        for name, make in PARTS.items():
            if not options.parts or name in options.parts:
                with step(name):
                    make(commit, options, new)
        if not options.parts:
            write_sums(new)
            if signer is not None:
                _write(new / SIGNATURE, signer.signature((new / SUMS).read_bytes()))
        options.out.mkdir(parents=True, exist_ok=True)
        forget(options.out)
        return [Path(shutil.copy2(path, options.out)) for path in sorted(new.iterdir())]


@contextlib.contextmanager
def step(what: str) -> Iterator[None]:
    """Print a step and its duration."""
    print(f"== {what}", end="", flush=True)
    begun = time.monotonic()
    try:
        yield
    except BaseException:
        print(flush=True)
        raise
    print(f"  {time.monotonic() - begun:.1f} s", flush=True)


# ---- sources -------------------------------------------------------------------------------------


def git(*words: str) -> bytes:
    """Return the output of a git command in this checkout."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=True)
    except FileNotFoundError as error:
        raise ReleaseError("git is needed: apt-get install git") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()
        raise ReleaseError(
            f"git {words[0]}: {said}\nA release is made in a git checkout."
        ) from error
    return done.stdout


def export(tree: Path, *, allow_dirty: bool) -> Commit:
    """Copy the commit's files to the folder ``tree``.

    Args:
        tree: folder to create.
        allow_dirty: if true, include uncommitted changes and files.

    Raises:
        ReleaseError: there are uncommitted changes, or a tag has another version.
    """
    revision = git("rev-parse", "HEAD").decode().strip()
    changes = git("status", "--porcelain").decode().splitlines()
    tree.mkdir(parents=True)
    if not changes:
        with tarfile.open(fileobj=io.BytesIO(git("archive", "--format=tar", "HEAD"))) as tar:
            tar.extractall(tree, filter="data")
    elif allow_dirty:
        revision += "-dirty"
        listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
        for name in filter(None, listed.decode().split("\0")):
            if (ROOT / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, tree / name)
    else:
        shown = "\n".join(f"  {line}" for line in changes[:10])
        more = f"\n  and {len(changes) - 10} more" if len(changes) > 10 else ""
        raise ReleaseError(
            f"not everything is committed:\n{shown}{more}\n"
            "Commit the changes, or make a trial release: make release ALLOW_DIRTY=1"
        )
    created = int(git("show", "--no-patch", "--format=%ct", "HEAD"))
    found = re.search(
        r'^__version__ = "(.+)"$', _text(tree / "src/jobsetpy/__init__.py"), re.MULTILINE
    )
    if found is None:
        raise ReleaseError("src/jobsetpy/__init__.py has no line __version__ = ...")
    version = found[1]
    tags = [tag for tag in git("tag", "--points-at", "HEAD").decode().split() if tag[:1] == "v"]
    if tags and f"v{version}" not in tags:
        raise ReleaseError(
            f"the commit is tagged {', '.join(tags)}, but src/jobsetpy/__init__.py says {version}: "
            "set the version there, commit, and move the tag"
        )
    return Commit(tree=tree, revision=revision, created=created, version=version)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


# ---- the parts -----------------------------------------------------------------------------------


def make_wheel(commit: Commit, _options: Options, out: Path) -> None:
    """Build wheel and source archive; the backend dates entries by SOURCE_DATE_EPOCH."""
    with _environment(SOURCE_DATE_EPOCH=str(commit.created)):
        project.build_wheel(commit.tree, out)
        from hatchling.builders.sdist import SdistBuilder

        builder = SdistBuilder(str(commit.tree))
        list(builder.build(directory=str(out), versions=["standard"]))


def make_images(commit: Commit, options: Options, out: Path) -> None:
    """Write the images as archives with compressed layers, and lists of their digests.

    With several architectures, each has its own archive, and one more archive contains all of them
    with an image index, whose digest manifests use.
    """
    archives: dict[str, list[Path]] = {name: [] for name in project.NAMES}
    wheel = next(out.glob("*.whl"), None)
    called = project.Release(
        prefix=options.prefix,
        tag=commit.version,
        revision=commit.revision,
        created=commit.created,
        compress=True,
    )
    for arch in options.images_for:
        lines = []
        source = project.Source(project=commit.tree, wheel=wheel, sysroot=sysroot_of(arch))
        for name in project.NAMES:
            with tempfile.TemporaryDirectory() as place:
                built = project.build(name, Path(place), source, called)
                target = out / f"{built.path.stem}-{commit.version}-linux-{arch}.tar"
                shutil.move(built.path, target)
            archives[name].append(target)
            lines.append(f"{built.reference}@{built.digest}\n")
        _write(out / f"images-linux-{arch}.txt", "".join(lines))
    if len(options.images_for) > 1:
        lines = []
        for name, parts in archives.items():
            whole = out / f"{project.PACKAGE}-{name}-{commit.version}-index.tar"
            lines.append(f"{called.reference(name)}@{join(parts, whole)}\n")
        _write(out / "images.txt", "".join(lines))


def sysroot_of(arch: str) -> Sysroot | None:
    """Return the sources of images for an architecture other than this machine's."""
    return None if arch == architecture() else Sysroot.of(arch)


def make_manifests(commit: Commit, options: Options, out: Path) -> None:
    """Render ``config/`` with ``kubectl kustomize``, one file for each use, with image tags."""
    config = commit.tree / "config"
    folders = {name: config / folder for name, folder in MANIFESTS.items()}
    folders |= standing_alone(config)
    images = {
        f"{project.PACKAGE}-{name}": f"{options.prefix}{project.PACKAGE}-{name}:{commit.version}"
        for name in project.NAMES
    }
    for name, folder in folders.items():
        text = to_yaml(sorted(render(folder, images=images), key=rank))
        if left := UNVERSIONED.findall(text):
            raise ReleaseError(
                f"{name} still names {left[0]}: add its field to config/*/image_fields.yaml"
            )
        header = f"# jobsetpy {commit.version}, from config/{folder.relative_to(config)}\n"
        _write(out / name, header + text)


def standing_alone(config: Path) -> dict[str, Path]:
    """Kustomizations that are neither components nor bases of others, by file name.

    Without ``local``, whose images a user has built, and ``samples``, which are no installation.
    """
    found, used = set(), set()
    for path in config.rglob("kustomization.yaml"):
        text = yaml.safe_load(_text(path))
        if text["kind"] == "Kustomization":
            found.add(path.parent.resolve())
        used |= {(path.parent / name).resolve() for name in text.get("resources", ())}
    known = {(config / folder).resolve() for folder in (*MANIFESTS.values(), "samples", "local")}
    below = [path.relative_to(config.resolve()) for path in sorted(found - used - known)]
    return {f"{'-'.join(path.parts)}.yaml": config / path for path in below}


def rank(document: dict[str, Any]) -> int:
    """Sort namespaces and CRDs before objects that need them, webhooks after their servers."""
    kind = document["kind"]
    if kind in {"Namespace", "CustomResourceDefinition"}:
        return -2 if kind == "Namespace" else -1
    return int(kind.endswith("WebhookConfiguration"))


def to_yaml(documents: Sequence[dict[str, Any]]) -> str:
    """Return several documents as one file; the order of fields is kept."""
    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    dumper = type("Dumper", (base,), {"ignore_aliases": lambda *_: True})
    text: str = yaml.dump_all(
        documents, Dumper=dumper, sort_keys=False, explicit_start=True, width=100
    )
    return text


def make_chart(commit: Commit, options: Options, out: Path) -> None:
    """Package the Helm chart with the release's registry.

    Its file name differs from that of the source archive.
    """
    folder = commit.tree / "charts" / project.PACKAGE
    if not folder.exists():
        return
    chart = yaml.safe_load(_text(folder / "Chart.yaml"))
    for key in ("version", "appVersion"):
        if chart.get(key) != commit.version:
            raise ReleaseError(
                f"charts/{project.PACKAGE}/Chart.yaml has {key} {chart.get(key)}, the package is "
                f"{commit.version}: set both to the same version, and commit"
            )
    ignore = folder / ".helmignore"
    patterns = [
        line.strip().rstrip("/")
        for line in (_text(ignore).splitlines() if ignore.exists() else ())
        if line.strip() and not line.startswith("#")
    ]
    entries = {}
    for path in sorted(folder.rglob("*")):
        below = path.relative_to(folder)
        ignored = any(fnmatch(part, pattern) for part in below.parts for pattern in patterns)
        if path.is_file() and not ignored:
            entries[f"{chart['name']}/{below.as_posix()}"] = path.read_bytes()
    values = f"{chart['name']}/values.yaml"
    registry = f'registry: "{options.prefix.rstrip("/")}"'.encode()
    entries[values] = entries[values].replace(b'registry: ""', registry, 1)  # that of image
    _write(out / f"{chart['name']}-chart-{chart['version']}.tgz", packed(entries, commit.created))


def packed(entries: dict[str, bytes], created: int) -> bytes:
    """Write a compressed tar file of these entries, all with the same date."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, data in entries.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = len(data), 0o644, created
            tar.addfile(info, io.BytesIO(data))
    return gzip.compress(buffer.getvalue(), GZIP_LEVEL, mtime=0)


def make_notes(commit: Commit, _options: Options, out: Path) -> None:
    """Return the section of ``CHANGELOG.md`` on this version, or on the next one."""
    text = _text(commit.tree / "CHANGELOG.md")
    sections = {
        title.strip("[]").split("]")[0].split(" ")[0]: body
        for title, body in re.findall(
            r"^## (.+?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
        )
    }
    body = sections.get(commit.version, sections.get("Unreleased", "")).strip()
    if not body:
        raise ReleaseError(
            f"CHANGELOG.md has neither a section {commit.version} nor anything under Unreleased"
        )
    _write(out / "RELEASE-NOTES.md", f"# {project.PACKAGE} {commit.version}\n\n{body}\n")


def make_sbom(commit: Commit, _options: Options, out: Path) -> None:
    """Write an SBOM for the wheel and for each image that was made."""
    from cyclonedx.model.component import ComponentType

    requirements = commit.tree / "requirements"
    for wheel in sorted(out.glob("*.whl")):
        parts = sbom.of_requirements(
            requirements / project.PINS["manager"], requirements / project.PINS["agent"]
        )
        text = sbom.sbom(wheel, ComponentType.LIBRARY, commit, parts)
        _write(out / f"{wheel.name}{SBOM}", text)
    for name, archive in images(out):
        parts = _made_of(commit, name, archive)
        text = sbom.sbom(archive, ComponentType.CONTAINER, commit, parts)
        _write(out / f"{archive.name}{SBOM}", text)


def images(out: Path) -> Iterator[tuple[str, Path]]:
    """Return the images that were made, by name."""
    for name in project.NAMES:
        for archive in sorted(out.glob(f"{project.PACKAGE}-{name}-*-linux-*.tar")):
            yield name, archive


def _made_of(commit: Commit, name: str, archive: Path) -> list[sbom.Material]:
    pins = commit.tree / "requirements" / project.PINS[name]
    other = sysroot_of(archive.stem.rpartition("-")[2])
    if other is None:
        return sbom.of_image(archive, pins, sbom.of_python(Interpreter.default().program))
    python = sbom.of_python(other.interpreter.program, other.folder, other.owner)
    return sbom.of_image(archive, pins, python, other.owner)


def make_provenance(commit: Commit, options: Options, out: Path) -> None:
    """Return the materials of the release: the commit, its pins, packages and compilers."""
    said = ("pyproject.toml", "Containerfile")
    listed = list(commit.tree.glob("requirements/*.txt"))
    inputs = {
        path.relative_to(commit.tree).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted([*listed, *(commit.tree / name for name in said)])
    }
    requirements = commit.tree / "requirements"
    parts = sbom.of_requirements(requirements / "build.txt", requirements / "agent.txt")
    tools = ["gcc", "as", "ld", "strip"]
    others = [other for arch in options.images_for if (other := sysroot_of(arch)) is not None]
    parts += sbom.of_tools([*tools, *(other.tool(tool) for other in others for tool in tools)])
    for name, archive in images(out):
        parts += [each for each in _made_of(commit, name, archive) if each.name != project.PACKAGE]
    _write(
        out / "provenance.json",
        sbom.provenance(
            [path for path in out.iterdir() if path.is_file()],
            revision=commit.revision,
            parameters={
                "version": commit.version,
                "imagePrefix": options.prefix,
                "architectures": ",".join(options.images_for),
            },
            inputs=inputs,
            made_of=parts,
        ),
    )


PARTS: dict[str, Callable[[Commit, Options, Path], None]] = {
    "wheel": make_wheel,
    "images": make_images,
    "manifests": make_manifests,
    "chart": make_chart,
    "notes": make_notes,
    "sbom": make_sbom,
    "provenance": make_provenance,
}


def write_sums(folder: Path) -> None:
    """Write SHA256SUMS, in the format of ``sha256sum --check``."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(folder.iterdir())
    ]
    _write(folder / SUMS, "".join(lines))


def forget(folder: Path) -> None:
    """Delete the files of an earlier release."""
    sums = folder / SUMS
    if sums.exists():
        for line in _text(sums).splitlines():
            name = line.partition("  ")[2]
            if name == Path(name).name:
                (folder / name).unlink(missing_ok=True)
        sums.unlink()
        (folder / SIGNATURE).unlink(missing_ok=True)


def _write(path: Path, content: str | bytes) -> None:
    path.write_bytes(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


if __name__ == "__main__":
    sys.exit(main())

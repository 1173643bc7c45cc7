"""Releases: the same commit gives the same bytes, and an invalid state is refused."""

import base64
import hashlib
import json
import os
import shutil
import sys
import tarfile
from pathlib import Path

import pytest
import yaml
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import ComponentType

import jobsetpy
from hack.images import project
from hack.images.archive import Image, Layer
from hack.release import release, sbom, sign
from support.commands import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[4]
COPIED = ("src", "config", "charts", "hack", "requirements")
FILES = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Containerfile", ".gitignore")
VERSION = jobsetpy.__version__
GIT = {
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.com",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.com",
    "GIT_AUTHOR_DATE": "1700000000 +0000",
    "GIT_COMMITTER_DATE": "1700000000 +0000",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
QUICK = [word for part in release.PARTS if part != "images" for word in ("--part", part)]


def git(folder, *words):
    run("git", "-C", folder, *words, check=True, timeout_s=240, env={**os.environ, **GIT})


def checkout(folder):
    """Copy this project to a new repository with one commit."""
    folder.mkdir(parents=True)
    ignore = shutil.ignore_patterns("__pycache__", ".mypy_cache")
    for name in COPIED:
        if (ROOT / name).exists():
            shutil.copytree(ROOT / name, folder / name, ignore=ignore, copy_function=shutil.copy)
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=All")
    return folder


def make(folder, out, *words, umask=0o022, **env):
    """Run the release script of a checkout."""
    clean = {k: v for k, v in os.environ.items() if k not in {"ALLOW_DIRTY", "IMAGE_PREFIX"}}
    command = (sys.executable, "-m", "hack.release.release", "--out", out, *words)
    # The working directory makes Python use the checkout's script.
    return run(*command, cwd=folder, timeout_s=240, umask=umask, env={**clean, **GIT, **env})


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A repository that tests do not change."""
    return checkout(tmp_path_factory.mktemp("release") / "repository")


@pytest.fixture(scope="module")
def made(repository, tmp_path_factory):
    """A release without the images, which take long."""
    out = tmp_path_factory.mktemp("made")
    done = make(repository, out, *QUICK, "--image-prefix=registry.example/team")
    assert done.returncode == 0, done.stderr
    assert "== wheel  " in done.stdout
    return out


def sums(folder):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def test_the_same_commit_gives_the_same_bytes(made, tmp_path):
    """Folder, umask, time zone, language and hash seed do not matter."""
    other = checkout(tmp_path / "some where else")
    for path in other.rglob("*.py"):
        os.utime(path, (1, 1))
    other_env = {"TZ": "Asia/Kathmandu", "LC_ALL": "C", "PYTHONHASHSEED": "7"}
    words = [*QUICK, "--image-prefix=registry.example/team/"]
    done = make(other, tmp_path / "out", *words, umask=0o077, **other_env)
    assert done.returncode == 0, done.stderr
    assert sums(tmp_path / "out") == sums(made)


def test_a_release_is_complete(made):
    """It has packages, a manifest for each kind of installation, the chart and the notes."""
    names = set(sums(made))
    assert {
        f"jobsetpy-{VERSION}-py3-none-any.whl",
        f"jobsetpy-{VERSION}.tar.gz",
        "RELEASE-NOTES.md",
        *release.MANIFESTS,
    } <= names
    with tarfile.open(made / f"jobsetpy-chart-{VERSION}.tgz") as chart:
        values = yaml.load(chart.extractfile("jobsetpy/values.yaml"), LOADER)
    assert values["image"]["registry"] == "registry.example/team"
    assert values["agent"]["image"]["registry"] == ""  # that of the manager
    notes = (made / "RELEASE-NOTES.md").read_text()
    assert notes.startswith(f"# jobsetpy {VERSION}\n\n### ")
    assert "\n## " not in notes


def test_the_sbom_of_the_wheel_has_all_pinned_libraries(made):
    """It is valid CycloneDX with the time of the commit, and marks libraries that all users need."""
    wheel = made / f"jobsetpy-{VERSION}-py3-none-any.whl"
    text = json.loads((made / f"{wheel.name}.cdx.json").read_text())
    assert text["specVersion"] == "1.6"
    assert text["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"
    bom = Bom.from_json(text)
    (digest,) = bom.metadata.component.hashes
    assert digest.content == hashlib.sha256(wheel.read_bytes()).hexdigest()
    found = {each.name: each for each in bom.components}
    pinned = sbom.pinned_hashes(ROOT / "requirements/runtime.txt")
    assert {name: each.version for name, each in found.items()} == {
        name: version for name, (version, _) in pinned.items()
    }
    assert {name for name, each in found.items() if each.scope == "required"} == {"h11", "msgspec"}
    hashes = {each.value for each in found["aiohttp"].properties if each.name == sbom.PINNED}
    assert hashes == set(pinned["aiohttp"][1]) != set()


def test_the_provenance_names_the_commit_and_all_inputs(made, repository):
    """It is an in-toto statement about all other files, with the hashes of pinned libraries."""
    statement = json.loads((made / "provenance.json").read_text())
    assert (statement["_type"], statement["predicateType"]) == (sbom.STATEMENT, sbom.PREDICATE)
    subjects = {each["name"]: each["digest"]["sha256"] for each in statement["subject"]}
    assert subjects == {n: s for n, s in sums(made).items() if n != "provenance.json"}
    definition = statement["predicate"]["buildDefinition"]
    assert definition["externalParameters"]["imagePrefix"] == "registry.example/team/"
    inputs = {each["uri"]: each for each in definition["resolvedDependencies"]}
    revision = definition["externalParameters"]["revision"]
    assert inputs[f"git+commit:{revision}"]["digest"] == {"gitCommit": revision}
    agent = hashlib.sha256((repository / "requirements/agent.txt").read_bytes()).hexdigest()
    assert inputs["file:requirements/agent.txt"]["digest"] == {"sha256": agent}
    (h11,) = [each for uri, each in inputs.items() if uri.startswith("pkg:pypi/h11@")]
    assert all(len(each) == 64 for each in h11["annotations"]["pinnedSha256"])
    assert h11["annotations"]["pinnedSha256"]


def image(path, *distributions):
    """Write an image with distributions, an interpreter and a library of the system."""
    layer = Layer()
    layer.file("usr/local/lib/python3.11/os.py", "x")
    layer.file("etc/passwd", "x")
    layer.file("lib/x/libmade-up.so.1", b"elf")
    for name, version in distributions:
        text = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nLicense: MIT\n\n# Text\n"
        layer.file(f"app/{name}-{version}.dist-info/METADATA", text)
    Image(reference="localhost/a:b", layers=[layer], compress=True).write(path)
    return path


def test_the_sbom_of_an_image_is_derived_from_the_image(tmp_path):
    """It has distributions with licences and libraries with sums; its text is reproducible."""
    pins = ROOT / "requirements/agent.txt"
    h11 = sbom.pinned_hashes(pins)["h11"][0]
    archive = image(tmp_path / "a.tar", ("h11", h11), ("jobsetpy", VERSION))
    python = sbom.of_python(Path(sys.executable).resolve())
    texts = {
        sbom.sbom(
            archive,
            ComponentType.CONTAINER,
            release.Commit(tree=tmp_path, revision="r", created=5, version=VERSION),
            sbom.of_image(archive, pins, python),
        )
        for _ in range(2)
    }
    (text,) = texts
    found = {each["name"]: each for each in json.loads(text)["components"]}
    assert found["h11"]["licenses"] == [{"license": {"id": "MIT"}}]
    assert found["h11"]["purl"] == f"pkg:pypi/h11@{h11}"
    assert {"jobsetpy", python.name} < found.keys()
    ((library,),) = [v["components"] for k, v in found.items() if "libmade-up" in k]
    assert library["hashes"][0]["content"] == hashlib.sha256(b"elf").hexdigest()
    odd = image(tmp_path / "b.tar", ("nowhere", "1"))
    with pytest.raises(ValueError, match=r"b\.tar has nowhere 1, which is not pinned"):
        sbom.of_image(odd, pins, python)


@pytest.mark.parametrize(
    "words",
    [
        ["ecparam", "-genkey", "-name", "prime256v1", "-noout"],
        ["genpkey", "-algorithm", "RSA", "-quiet"],
    ],
    ids=["EC", "RSA"],
)
def test_openssl_verifies_signatures(tmp_path, words):
    """The key was created by openssl; a signature is refused once the sums have changed."""
    key, public, text, sig = (tmp_path / name for name in ("key", "pub", "SHA256SUMS", "sig"))
    key.write_text(run("openssl", *words).stdout)
    public.write_text(run("openssl", "pkey", "-in", key, "-pubout").stdout)
    text.write_text("sums\n")
    sig.write_bytes(base64.b64decode(sign.Signer.of(key).signature(text.read_bytes())))
    check = ("openssl", "dgst", "-sha256", "-verify", public, "-signature", sig, text)
    assert run(*check).returncode == 0
    text.write_text("others\n")
    assert run(*check).returncode == 1


def test_an_invalid_key_is_refused_before_anything_is_written(tmp_path, capsys):
    """The error names the file."""
    (tmp_path / "key").write_text("no key")
    assert release.main(["--out", str(tmp_path / "out"), "--key", str(tmp_path / "key")]) == 1
    assert f"{tmp_path / 'key'}: no private key in PEM" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_every_standalone_kustomization_is_released(made):
    """These are all that no other one uses, except the samples."""
    headers = [path.read_text().partition("\n")[0] for path in made.glob("*.yaml")]
    folders = [header.rpartition(" config/")[2] for header in headers]
    assert len(set(folders)) == len(folders)
    assert {"default", "without-webhooks", "agent/account", "agent/flow"} <= set(folders)
    assert not {"samples", "webhook", "manager", "rbac"} & set(folders)
    assert all((ROOT / "config" / folder).is_dir() for folder in folders)


def test_manifests_name_the_images_of_the_release(made):
    """Manager and agent have the version and the prefix, and no tag that changes."""
    for path in made.glob("*.yaml"):
        text = path.read_text()
        assert "jobsetpy-manager:latest" not in text
        assert "jobsetpy-agent:latest" not in text
        assert all(item["kind"] for item in yaml.load_all(text, LOADER))
    text = (made / "install.yaml").read_text()
    for name in ("manager", "agent"):
        assert f"registry.example/team/jobsetpy-{name}:{VERSION}" in text


def test_the_source_archive_builds_the_same_wheel(made, tmp_path):
    """It is complete, and its entries have the time of the commit."""
    with tarfile.open(made / f"jobsetpy-{VERSION}.tar.gz") as tar:
        assert {member.mtime for member in tar} == {1700000000}
        assert {(member.uid, member.gid) for member in tar} == {(0, 0)}
        tar.extractall(tmp_path, filter="data")
    with release._environment(SOURCE_DATE_EPOCH="1700000000"):
        wheel = project.build_wheel(tmp_path / f"jobsetpy-{VERSION}", tmp_path / "out")
    assert wheel.read_bytes() == (made / wheel.name).read_bytes()


@pytest.fixture
def clone(tmp_path, repository, monkeypatch):
    """A repository that may be changed; the script in this process uses it."""
    folder = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(repository), str(folder))
    monkeypatch.setattr(release, "ROOT", folder)
    for name in ("ALLOW_DIRTY", "IMAGE_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    return folder


def test_uncommitted_files_are_refused_or_marked(clone, tmp_path, monkeypatch, capsys):
    """The error names the files and the remedy; ALLOW_DIRTY=1 includes them."""
    (clone / "config" / "new.yaml").write_text("a: b\n")
    (clone / "README.md").write_text("# changed\n")
    out = tmp_path / "out"
    assert release.main(["--out", str(out), "--part", "notes"]) == 1
    error = capsys.readouterr().err
    assert "?? config/new.yaml" in error
    assert "make release ALLOW_DIRTY=1" in error
    assert not out.exists()
    monkeypatch.setenv("ALLOW_DIRTY", "1")
    assert release.main(["--out", str(out), "--part", "wheel"]) == 0
    assert "-dirty" in capsys.readouterr().out
    with tarfile.open(out / f"jobsetpy-{VERSION}.tar.gz") as tar:
        assert f"jobsetpy-{VERSION}/config/new.yaml" in tar.getnames()


@pytest.mark.parametrize(
    ("path", "old", "new", "part", "message"),
    [
        ("CHANGELOG.md", "## ", "## 0.0 was ", "notes", "CHANGELOG.md has neither"),
        ("src/jobsetpy/__init__.py", "__version__", "_version", "notes", "no line __version__"),
        ("src/jobsetpy/__init__.py", VERSION, "7.0", "notes", "move the tag"),
        ("charts/jobsetpy/Chart.yaml", VERSION, "7.0", "chart", "set both to the same version"),
        ("config/manager/manager.yaml", "args:", "x: 'jobsetpy-agent:dev'\n        args:",
         "manifests", "install.yaml still names jobsetpy-agent:dev"),
    ],
)  # fmt: skip
def test_inconsistent_versions_are_refused(clone, tmp_path, capsys, path, old, new, part, message):
    """Version, tag, chart, notes and images have to agree; the error says which do not."""
    text = (clone / path).read_text()
    assert old in text
    (clone / path).write_text(text.replace(old, new))
    git(clone, "commit", "--quiet", "--all", "--message=Odd")
    if "tag" in message:
        git(clone, "tag", f"v{VERSION}")
    assert release.main(["--out", str(tmp_path / "out"), "--part", part]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.foreign
@pytest.mark.timeout(1200)
def test_a_release_for_two_architectures(repository, tmp_path):
    """Each image has an archive and an SBOM per architecture, and an index of both."""
    words = ["--arch", "arm64", "--arch", "amd64", "--part", "images", "--part", "sbom"]
    done = make(repository, tmp_path, *words)
    assert done.returncode == 0, done.stderr
    for name in ("manager", "agent"):
        stem = f"jobsetpy-{name}-{VERSION}"
        with tarfile.open(tmp_path / f"{stem}-index.tar") as tar:
            (entry,) = json.load(tar.extractfile("index.json"))["manifests"]
            blob = f"blobs/{entry['digest'].replace(':', '/')}"
            inner = json.load(tar.extractfile(blob))["manifests"]
        assert {each["platform"]["architecture"] for each in inner} == {"amd64", "arm64"}
        assert (
            f"{stem.replace(f'-{VERSION}', '')}:{VERSION}@{entry['digest']}\n"
            in (tmp_path / "images.txt").read_text()
        )
        text = (tmp_path / f"{stem}-linux-arm64.tar{release.SBOM}").read_text()
        found = {each["name"]: each for each in json.loads(text)["components"]}
        for package in ("libc6", "libssl3", "python3.11-minimal"):
            assert found[package]["purl"].endswith("?arch=arm64")

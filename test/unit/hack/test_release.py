"""Releases: the same commit gives the same bytes, and what is not fit for one is refused."""

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

import jobsetpy
from hack import release
from support import patience

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[3]
COPIED = ("src", "config", "charts", "hack", "requirements")
FILES = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Containerfile", ".gitignore")
VERSION = jobsetpy.__version__
WHO = {
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.com",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.com",
    "GIT_AUTHOR_DATE": "1700000000 +0000",
    "GIT_COMMITTER_DATE": "1700000000 +0000",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}
QUICK = [word for part in release.PARTS if part != "images" for word in ("--part", part)]


def git(folder, *words):
    command = ["git", "-C", str(folder), *words]
    subprocess.run(
        command,
        check=True,
        capture_output=True,
        timeout=patience.scaled(240),
        env={**os.environ, **WHO},
    )


def checkout(folder):
    """This project as a repository of its own, with one commit."""
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
    return subprocess.run(
        [sys.executable, "-m", "hack.release", "--out", str(out), *words],
        cwd=folder,  # so that it is the checkout's own
        capture_output=True,
        text=True,
        check=False,
        timeout=patience.scaled(240),
        umask=umask,
        env={**clean, **WHO, **env},
    )


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A repository that tests leave as they found it."""
    return checkout(tmp_path_factory.mktemp("release") / "repository")


@pytest.fixture(scope="module")
def made(repository, tmp_path_factory):
    """A release but for the images, which take a while."""
    out = tmp_path_factory.mktemp("made")
    done = make(repository, out, *QUICK, "--image-prefix=registry.example/team")
    assert done.returncode == 0, done.stderr
    assert "== wheel  " in done.stdout
    return out


def sums(folder):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def test_the_same_commit_gives_the_same_bytes(made, tmp_path):
    """In another folder, with another mask, time zone, language and hash seed."""
    other = checkout(tmp_path / "some where else")
    for path in other.rglob("*.py"):
        os.utime(path, (1, 1))
    strange = {"TZ": "Asia/Kathmandu", "LC_ALL": "C", "PYTHONHASHSEED": "7"}
    words = [*QUICK, "--image-prefix=registry.example/team/"]
    done = make(other, tmp_path / "out", *words, umask=0o077, **strange)
    assert done.returncode == 0, done.stderr
    assert sums(tmp_path / "out") == sums(made)


def test_a_release_has_all_that_is_needed(made):
    """Packages, a manifest for each way to install, the chart and the notes."""
    names = set(sums(made))
    assert {
        f"jobsetpy-{VERSION}-py3-none-any.whl",
        f"jobsetpy-{VERSION}.tar.gz",
        "RELEASE-NOTES.md",
        *release.MANIFESTS,
    } <= names
    assert (f"jobsetpy-chart-{VERSION}.tgz" in names) is (ROOT / "charts/jobsetpy").exists()
    notes = (made / "RELEASE-NOTES.md").read_text()
    assert notes.startswith(f"# jobsetpy {VERSION}\n\n### ")
    assert "\n## " not in notes


def test_every_kustomization_that_stands_alone_is_released(made):
    """All that no other one is built on, but for the samples."""
    headers = [path.read_text().partition("\n")[0] for path in made.glob("*.yaml")]
    folders = [header.rpartition(" config/")[2] for header in headers]
    assert len(set(folders)) == len(folders)
    assert {"default", "without-webhooks", "agent/account", "agent/flow"} <= set(folders)
    assert not {"samples", "webhook", "manager", "rbac"} & set(folders)
    assert all((ROOT / "config" / folder).is_dir() for folder in folders)


def test_what_stands_alone(tmp_path):
    """Neither a component nor what another one is built on, nor what has a name of its own."""

    def folder(path, kind, *resources):
        (tmp_path / path).mkdir(parents=True)
        text = {"kind": kind, "resources": list(resources)}
        (tmp_path / path / "kustomization.yaml").write_text(yaml.safe_dump(text))

    folder("default", "Kustomization", "../base")
    folder("base", "Kustomization", "x.yaml")
    folder("more", "Component")
    folder("a/b", "Kustomization", "../../base")
    assert release.standing_alone(tmp_path) == {"a-b.yaml": tmp_path / "a/b"}


def test_manifests_name_the_releases_images(made):
    """Manager and agent, with the version and the prefix, and nothing that moves."""
    for path in made.glob("*.yaml"):
        text = path.read_text()
        assert "jobsetpy-manager:latest" not in text
        assert "jobsetpy-agent:latest" not in text
        assert all(item["kind"] for item in yaml.load_all(text, release_loader()))
    text = (made / "install.yaml").read_text()
    for name in ("manager", "agent"):
        assert f"registry.example/team/jobsetpy-{name}:{VERSION}" in text


def release_loader():
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def test_manifests_can_be_applied_in_their_order(made):
    """Namespace and definition first, and webhooks after those who answer them."""
    kinds = [
        item["kind"]
        for item in yaml.load_all((made / "install.yaml").read_text(), release_loader())
    ]
    assert kinds[:2] == ["Namespace", "CustomResourceDefinition"]
    assert kinds[-2:] == ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
    assert kinds.index("Deployment") < len(kinds) - 2


def test_the_source_archive_builds_the_same_wheel(made, tmp_path):
    """What is in it is enough, and its entries are dated by the commit."""
    from hack.images import project

    with tarfile.open(made / f"jobsetpy-{VERSION}.tar.gz") as tar:
        assert {member.mtime for member in tar} == {1700000000}
        assert {(member.uid, member.gid) for member in tar} == {(0, 0)}
        tar.extractall(tmp_path, filter="data")
    with release._environment(SOURCE_DATE_EPOCH="1700000000"):
        wheel = project.build_wheel(tmp_path / f"jobsetpy-{VERSION}", tmp_path / "out")
    assert wheel.read_bytes() == (made / wheel.name).read_bytes()


@pytest.fixture
def clone(tmp_path, repository, monkeypatch):
    """A repository to change, and the script working on it, in this process."""
    folder = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(repository), str(folder))
    monkeypatch.setattr(release, "ROOT", folder)
    for name in ("ALLOW_DIRTY", "IMAGE_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    return folder


def test_what_is_not_committed_is_refused_or_marked(clone, tmp_path, monkeypatch, capsys):
    """The message names the files and the way on; ALLOW_DIRTY=1 takes them."""
    (clone / "config" / "new.yaml").write_text("a: b\n")
    (clone / "README.md").write_text("# changed\n")
    out = tmp_path / "out"
    assert release.main(["--out", str(out), "--part", "notes"]) == 1
    said = capsys.readouterr().err
    assert "?? config/new.yaml" in said
    assert "make release ALLOW_DIRTY=1" in said
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
        ("charts/jobsetpy/Chart.yaml", VERSION, "7.0", "chart", "set both alike"),
        ("config/manager/manager.yaml", "args:", "x: 'jobsetpy-agent:dev'\n        args:",
         "manifests", "install.yaml still names jobsetpy-agent:dev"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_refused(
    clone, tmp_path, capsys, path, old, new, part, message
):
    """Version, tag, chart, notes and images have to agree; the message says which do not."""
    text = (clone / path).read_text()
    assert old in text
    (clone / path).write_text(text.replace(old, new))
    git(clone, "commit", "--quiet", "--all", "--message=Odd")
    if "tag" in message:
        git(clone, "tag", f"v{VERSION}")
    assert release.main(["--out", str(tmp_path / "out"), "--part", part]) == 1
    assert message in capsys.readouterr().err


def test_sums_are_what_sha256sum_reads_and_what_goes_with_the_next_release(tmp_path):
    """Files of the last release go, whatever else lies there stays."""
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    release.write_sums(tmp_path)
    command = ["sha256sum", "--check", "--strict", release.SUMS]
    subprocess.run(
        command, cwd=tmp_path, check=True, capture_output=True, timeout=patience.scaled(60)
    )
    (tmp_path / "mine").touch()
    release.forget(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_packed_files_are_sorted_by_the_caller_and_dated(tmp_path):
    """A tar file with the same header for every file, whoever makes it."""
    data = release.packed({"x/b": b"2", "x/a": b"1"}, 5)
    assert data == release.packed({"x/b": b"2", "x/a": b"1"}, 5)
    (tmp_path / "x.tar").write_bytes(gzip.decompress(data))
    with tarfile.open(tmp_path / "x.tar") as tar:
        assert [(m.name, m.mtime, m.mode, m.uid) for m in tar] == [
            ("x/b", 5, 0o644, 0),
            ("x/a", 5, 0o644, 0),
        ]

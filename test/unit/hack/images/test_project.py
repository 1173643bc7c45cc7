"""Images agree with the Containerfile, and their content can be run.

Where there is an engine, ``hack/images/compare.py`` compares them with the engine's images.
"""

import json
import os
import re
import shutil
import sys
import tarfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

from hack.images import compare, project, trim
from hack.images.archive import Image, Layer
from hack.images.containerfile import read_target, stages
from support.commands import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[4]
STAGES = stages((ROOT / "Containerfile").read_text())
BUILD = """
import pathlib, sys
from hack.images import project
release = project.Release(tag="1", revision="f00", created=1700000000)
source = project.Source(project=pathlib.Path(sys.argv[1]))
print(project.build("agent", pathlib.Path(sys.argv[2]), source, release).digest)
"""


def built(project_folder, out, umask, seed):
    """Build the agent's image of a checkout in another process; return path and digest.

    Its layers are not compressed, which takes long; test_archive compares compressed ones.
    """
    command = (sys.executable, "-c", BUILD, project_folder, out)
    env = {**os.environ, "PYTHONHASHSEED": seed}
    done = run(*command, timeout_s=240, umask=umask, env=env)
    assert done.returncode == 0, done.stderr
    return out / "jobsetpy-agent.tar", done.stdout


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    """Sources of images, in a folder that does not change."""
    folder = tmp_path_factory.mktemp("export")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "Containerfile"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    return folder


@pytest.fixture(scope="module")
def agent(export, tmp_path_factory):
    """Path and digest of the agent's image."""
    return built(export, tmp_path_factory.mktemp("agent"), 0o022, "1")


@pytest.fixture(scope="module")
def files(agent, tmp_path_factory):
    """Folder with the image's files, and the entries of its layers."""
    folder = tmp_path_factory.mktemp("files")
    entries = []
    with tarfile.open(agent[0]) as archive:
        for name in read(archive, "manifest.json")[0]["Layers"]:
            with tarfile.open(fileobj=archive.extractfile(name)) as layer:
                entries.append(layer.getmembers())
                layer.extractall(folder, filter="tar")
    return folder, entries


def read(archive, name):
    return json.load(archive.extractfile(name))


def test_an_image_is_the_same_each_time(agent, export, tmp_path):
    """Bytecode, compiled program and archive do not depend on time, folder, umask and hash seed."""
    path, digest = built(export, tmp_path / "other", 0o077, "2")
    assert digest == agent[1]
    assert path.read_bytes() == agent[0].read_bytes()


def test_images_are_for_the_restricted_profile(files):
    """The user is a number, there are no privileged bits, and only /tmp is world-writable."""
    for name in ("manager", "coscheduler", "agent"):
        target = read_target(ROOT / "Containerfile", name)
        assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", target.user), "a name cannot be checked"
        assert target.env["PYTHONDONTWRITEBYTECODE"] == "1"
    for entry in (entry for layer in files[1] for entry in layer):
        assert (entry.uid, entry.gid) == (0, 0), entry.name
        assert not entry.mode & 0o6000, entry.name
        assert entry.issym() or entry.name == "tmp" or not entry.mode & 0o022, entry.name
        assert entry.isreg() or entry.isdir() or entry.issym(), entry.name


def test_the_agents_image_has_exactly_the_agents_imports(files):
    """The agent can be imported with only the image's files, which include bytecode."""
    app = files[0] / "app"
    assert {path.name.partition("-")[0] for path in app.iterdir()} == {
        *("h11", "msgspec", "jobsetpy", "supervise")
    }
    parts = read_target(ROOT / "Containerfile", "agent").packages
    found = {path.name for path in (app / "jobsetpy").iterdir()} - {"__pycache__"}
    assert found == set(parts)
    sources = {path for path in app.rglob("*.py") if "dist-info" not in str(path)}
    for path in sources:
        cached = f"{path.stem}.{sys.implementation.cache_tag}.opt-2.pyc"
        assert (path.parent / "__pycache__" / cached).exists(), path
    code = "import jobsetpy.agent.main, jobsetpy.agent.supervisor.supervisor, jobsetpy.agent.startup_group.wait"
    code += ", jobsetpy.agent.supervisor.standby.process, jobsetpy.agent.supervisor.health"
    env = {"PYTHONPATH": str(app), "PYTHONDONTWRITEBYTECODE": "1"}
    done = run(sys.executable, "-s", "-S", "-OO", "-W", "error", "-c", code, env=env)
    assert done.returncode == 0, done.stderr


def test_stages_install_and_trim_the_same_libraries():
    """``hack/images`` copies the libraries that the Containerfile installs."""
    for name, pins in project.PINS.items():
        words = STAGES[f"{name}-files"].instructions
        assert ("COPY", f"requirements/{pins} hack/images/trim.py /") in words
        runs = [rest for word, rest in words if word == "RUN"]
        assert f"--require-hashes --target /libraries -r /{pins}" in runs[0]
        optimize = read_target(ROOT / "Containerfile", name).optimize
        python = "python" + (f" -{'O' * optimize}" if optimize else "")
        for command, folder in zip(runs, ("/libraries", "/app"), strict=True):
            assert command.endswith(f"&& {python} /trim.py {folder} --at /app")
        assert "--no-index --no-deps" in runs[1]
        copies = [rest for word, rest in STAGES[name].instructions if word == "COPY"]
        assert copies[:2] == [f"--from={name}-files /{each} /app" for each in ("libraries", "app")]


def test_nothing_runs_as_root_and_all_copied_files_exist():
    """The user is set last; the ignore file admits exactly the sources of every COPY."""
    for name in ("manager", "agent"):
        words = [word for word, _ in STAGES[name].instructions]
        assert not {"RUN", "COPY", "ADD"} & set(words[words.index("USER") :])
        assert "ADD" not in words
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    admitted = [line.removeprefix("!") for line in lines if line.startswith("!")]
    copied = set()
    for stage in STAGES.values():
        for word, rest in stage.instructions:
            if word == "COPY" and not rest.startswith("--from="):
                copied |= set(rest.split()[:-1])
    for path in copied:
        assert (ROOT / path).exists(), path
        assert any(fnmatch(path, pattern) for pattern in admitted), path
    for pattern in admitted:
        assert any(fnmatch(path, pattern) for path in copied), pattern


def test_libraries_are_trimmed(tmp_path):
    """Tests, stubs, C sources and an installer's records are removed; licences and modules stay."""
    kept = ["a/__init__.py", "a/data.json", "a-1.dist-info/METADATA", "a-1.dist-info/licenses/L.md"]
    gone = [
        *("bin/a", "a/x.pyi", "a/x.pyx", "a/tests/test_x.py", "a/__pycache__/x.pyc", "a/R.rst"),
        *("a-1.dist-info/RECORD", "a-1.dist-info/INSTALLER", "a-1.dist-info/direct_url.json"),
    ]
    for name in (*kept, *gone):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    trim.trim(tmp_path)
    left = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()}
    assert left == set(kept)


def test_installed_versions_have_to_be_the_pinned_ones(tmp_path):
    """Otherwise the image would differ from the Containerfile's; the error has the remedy."""
    pins = tmp_path / "x.txt"
    pins.write_text("h11==0.0.1 \\\n    --hash=sha256:00\nnot-there==1 ; sys_platform == 'mars'\n")
    with pytest.raises(FileNotFoundError, match=r"pins h11 0\.0\.1, installed is .*make setup"):
        project.pinned(pins)


def test_archives_are_compared_by_their_content(tmp_path):
    """Layers may be divided differently; other files, contents, users and commands are reported."""

    def image(files, **more):
        layers = []
        for name, content in files.items():
            layers.append(Layer())
            layers[-1].file(name, content)
        out = tmp_path / f"{len(list(tmp_path.iterdir()))}.tar"
        Image(reference="localhost/x:1", layers=layers, **more).write(out)
        return out

    ours = image({"app/a": "1", "app/b": "2", "etc/passwd": "ours"}, user="1:1", compress=True)
    assert not list(compare.differences(ours, image({"app/b": "2", "app/a": "1"}, user="1:1")))
    other = image({"app/a": "other", "app/c": "3"}, user="2:2", command=["x"])
    assert list(compare.differences(ours, other)) == [
        "Cmd: [] here, ['x'] there",
        "User: 1:1 here, 2:2 there",
        "app/a: contents differ",
        "app/b: only here",
        "app/c: only there",
    ]

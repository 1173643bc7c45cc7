"""The wheel as its users meet it: what is in it, what it says of itself, and its types."""

import email
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import jobsetpy
from hack.images import project
from support import patience

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[3]
MISUSE = """\
from jobsetpy import runtime as rt

async def wrong(client: rt.Client) -> None:
    client.no_such_method()
    reveal_type(rt.Result.done())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this checkout."""
    return project.build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """An environment with the wheel and what it depends on, and without this checkout."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(folder)],
        check=True,
        timeout=patience.scaled(240),
    )
    program = folder / "bin" / "python"
    words = ["install", "--quiet", "--no-deps", "--no-index", "--no-compile", str(wheel)]
    pip(program, *words)
    # The dependencies are those of this environment, without its .pth files: one is this checkout.
    site = next(folder.glob("lib/python3*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return program


def pip(program, *words):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", program]
    return run([*command, *words])


def run(command, cwd=None):
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        check=False,
        timeout=patience.scaled(240),
        cwd=cwd,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def said(wheel):
    """The wheel's METADATA."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        return email.message_from_string(archive.read(name).decode())


def test_the_wheel_has_the_package_and_nothing_else(wheel):
    """Every source file and the mark of types; no test, tool, benchmark or leftover."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        modes = {info.external_attr >> 16 & 0o777 for info in archive.infolist()}
    sources = {
        f"jobsetpy/{path.relative_to(ROOT / 'src/jobsetpy').as_posix()}"
        for path in (ROOT / "src/jobsetpy").rglob("*")
        if path.suffix in {".py", ".typed", ".json"}
    }
    assert "jobsetpy/py.typed" in names
    assert {name for name in names if name.startswith("jobsetpy/")} == sources
    others = {name.partition("/")[2] for name in names - sources}
    assert others == {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
    assert modes == {0o644}


def test_the_wheel_says_what_it_is(said):
    """Name, version, licence, README, the Pythons it is for, and the dependencies' bounds."""
    assert said["Name"] == "jobsetpy"
    assert said["Version"] == jobsetpy.__version__
    assert said["License-Expression"] == "Apache-2.0"
    assert said["License-File"] == "LICENSE"
    assert said["Requires-Python"] == ">=3.11"
    assert said["Description-Content-Type"] == "text/markdown"
    assert said.get_payload().strip() == (ROOT / "README.md").read_text().strip()
    classifiers = said.get_all("Classifier")
    assert "Typing :: Typed" in classifiers
    here = f"Programming Language :: Python :: {sys.version_info.major}.{sys.version_info.minor}"
    assert here in classifiers
    for need in said.get_all("Requires-Dist"):
        assert re.search(r">=\d", need), f"{need} has no lower bound"
    assert not re.search(r"https?://|@ ", " ".join(said.get_all("Requires-Dist")))


def test_the_wheel_is_the_same_each_time(wheel, tmp_path):
    """From a folder of another name, with other times."""
    copy = tmp_path / "elsewhere"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", copy / "src", ignore=ignore, copy_function=shutil.copyfile)
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copyfile(ROOT / name, copy / name)
    again = project.build_wheel(copy, tmp_path / "out")
    assert again.read_bytes() == wheel.read_bytes()


def test_the_installed_wheel_works(python, tmp_path):
    """The command, every module on this Python without a warning, and no conflict of versions."""
    command = python.parent / "jobsetpy"
    assert run([command, "--version"]).strip() == f"jobsetpy {jobsetpy.__version__}"
    assert "jobsets.jobset.x-k8s.io" in run([command, "crds"])
    code = (
        "import importlib, pkgutil, jobsetpy; print(jobsetpy.__file__);"
        "[importlib.import_module(m.name) for m in "
        "pkgutil.walk_packages(jobsetpy.__path__, 'jobsetpy.') if '__main__' not in m.name]"
    )
    place = run([python, "-I", "-W", "error", "-c", code], cwd=tmp_path).strip()
    assert Path(place).is_relative_to(python.parents[1])
    assert "No broken requirements" in pip(python, "check")


def test_its_users_get_types(python, tmp_path):
    """A controller is checked strictly against the wheel alone, and a mistake in one is found."""
    shutil.copy(ROOT / "examples" / "failed_pod_counter.py", tmp_path / "good.py")
    (tmp_path / "bad.py").write_text(MISUSE)
    mypy = [sys.executable, "-m", "mypy", "--config-file=", "--strict", "--no-pretty"]
    words = ["--no-error-summary", "--python-executable", python, "--cache-dir", tmp_path / "cache"]
    done = subprocess.run(
        [str(word) for word in (*mypy, *words, "good.py", "bad.py")],
        capture_output=True,
        text=True,
        check=False,
        timeout=patience.scaled(240),
        cwd=tmp_path,
    )
    lines = (done.stdout + done.stderr).splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["bad.py:4", "bad.py:5"]
    assert '"no_such_method"' in lines[0]
    assert "Result" in lines[1]

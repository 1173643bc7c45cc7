"""The wheel from a user's view: its content, its metadata, and its types."""

import email
import re
import shutil
import sys
import sysconfig
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import jobsetpy
from hack.images import project
from support.commands import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[4]
MISUSE = """\
from jobsetpy import runtime as rt
from jobsetpy.runtime import bodies

async def wrong(client: rt.Client) -> None:
    client.no_such_method()
    reveal_type(rt.Result.done())
    bodies.Deployment(spec={"replcas": 1})
    rt.evolve(rt.ObjectMeta(), nme="a")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this checkout."""
    return project.build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def python(environment):
    """An environment with the wheel and its dependencies, without this checkout."""
    folder, site = environment
    # The dependencies are those of this environment, without its .pth files: one is this checkout.
    (site / LIBRARIES).write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin/python"


LIBRARIES = "libraries.pth"
"""File that names the folder of libraries besides the wheel; each test writes its own."""


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """Folder and site-packages of an environment with the wheel alone."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    output_of(sys.executable, "-m", "venv", "--without-pip", folder)
    pip(folder / "bin/python", "install", "-q", "--no-deps", "--no-index", "--no-compile", wheel)
    return folder, next(folder.glob("lib/python3*/site-packages"))


def pip(program, *words):
    command = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", program)
    return output_of(*command, *words)


def output_of(*command, **options):
    done = run(*command, timeout_s=240, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def headers(wheel):
    """METADATA of the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        return email.message_from_string(archive.read(name).decode())


def test_the_wheel_has_only_the_package(wheel):
    """It has every source file and the marker of types, but no test, tool or benchmark."""
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


def test_the_wheel_has_metadata(headers):
    """It has name, version, licence, README, versions of Python, and bounds of dependencies."""
    assert headers["Name"] == "jobsetpy"
    assert headers["Version"] == jobsetpy.__version__
    assert headers["License-Expression"] == "Apache-2.0"
    assert headers["License-File"] == "LICENSE"
    assert headers["Requires-Python"] == ">=3.11"
    assert headers["Description-Content-Type"] == "text/markdown"
    assert headers.get_payload().strip() == (ROOT / "README.md").read_text().strip()
    classifiers = headers.get_all("Classifier")
    assert "Typing :: Typed" in classifiers
    here = f"Programming Language :: Python :: {sys.version_info.major}.{sys.version_info.minor}"
    assert here in classifiers
    for need in headers.get_all("Requires-Dist"):
        assert re.search(r">=\d|^jobsetpy\[", need), f"{need} has no lower bound"
    assert headers.get_all("Provides-Extra") == ["kubectl", "manager", "runtime", "webhooks"]
    assert not re.search(r"https?://|@ ", " ".join(headers.get_all("Requires-Dist")))


def test_the_installed_wheel_works(python, tmp_path):
    """The command runs, modules are imported without a warning, and versions do not conflict."""
    command = python.parent / "jobsetpy"
    assert output_of(command, "--version").strip() == f"jobsetpy {jobsetpy.__version__}"
    assert "jobsets.jobset.x-k8s.io" in output_of(command, "crds")
    code = (
        "import importlib, pkgutil, jobsetpy; print(jobsetpy.__file__);"
        "[importlib.import_module(m.name) for m in "
        "pkgutil.walk_packages(jobsetpy.__path__, 'jobsetpy.') if '__main__' not in m.name]"
    )
    place = output_of(python, "-I", "-W", "error", "-c", code, cwd=tmp_path).strip()
    assert Path(place).is_relative_to(python.parents[1])
    assert "No broken requirements" in pip(python, "check")


def libraries(extra, folder):
    """Link the libraries of an extra and their requirements from this environment."""
    ahead = [f"jobsetpy[{extra}]" if extra else "jobsetpy"]
    seen = set()
    while ahead:
        need = Requirement(ahead.pop())
        if str(need) in seen:
            continue
        seen.add(str(need))
        installed = metadata.distribution(need.name)
        for text in installed.requires or []:
            marker = Requirement(text).marker
            wanted = [{"extra": extra} for extra in need.extras or {""}]
            if marker is None or any(marker.evaluate(each) for each in wanted):
                ahead.append(text.partition(";")[0].strip())
        if need.name != "jobsetpy":
            for top in {file.parts[0] for file in installed.files if file.parts[0] != ".."}:
                if not (folder / top).is_symlink():
                    (folder / top).symlink_to(installed.locate_file(top))


@pytest.fixture
def bare(environment, tmp_path):
    """Function that runs a program of an environment with the wheel and the libraries of an extra."""
    folder, site = environment

    def call(extra, *words):
        place = tmp_path / (extra or "none")
        if not place.exists():
            place.mkdir()
            libraries(extra, place)
        (site / LIBRARIES).write_text(f"{place}\n")
        done = run(folder / "bin" / words[0], *words[1:], timeout_s=240, cwd=tmp_path)
        return done.returncode, done.stdout + done.stderr

    return call


LIBRARY = """\
import importlib, pkgutil, jobsetpy
from jobsetpy import runtime, testing
for part in ("aio", "api", "client", "controller", "informers", "manager", "testing", "workqueue"):
    folder = [f"{jobsetpy.__path__[0]}/{part}"]
    for module in pkgutil.walk_packages(folder, f"jobsetpy.{part}."):
        if module.name != "support.jobsets":  # needs JobSet's rules
            importlib.import_module(module.name)
"""


def test_an_extra_has_all_libraries_of_its_part(bare):
    """Agent, library, plugin and manager start with their extra; errors name a missing one."""
    none = ""
    assert bare(none, "python", "-m", "jobsetpy.agent", "--help")[0] == 0
    errors = [
        ("jobsetpy manager", "manager", bare(none, "jobsetpy", "manager")),
        ("jobsetpy manager", "manager", bare("runtime", "jobsetpy", "manager")),
        ("jobsetpy coscheduler", "manager", bare("runtime", "jobsetpy", "coscheduler")),
        ("jobsetpy run", "runtime", bare("kubectl", "jobsetpy", "run", "a:b")),
        ("kubectl jobset", "kubectl", bare("runtime", "kubectl-jobset", "lint", "a.yaml")),
        ("jobsetpy.runtime", "runtime", bare(none, "python", "-c", "import jobsetpy.runtime")),
        ("jobsetpy.testing", "runtime", bare(none, "python", "-c", "import jobsetpy.testing")),
        (
            "JobSet's rules",
            "manager",
            bare("runtime", "python", "-c", "import jobsetpy.reconcilers.failure_policy.patterns"),
        ),
        ("jobsetpy.api", "runtime", bare(none, "python", "-c", "import jobsetpy.api.jobset")),
    ]
    for part, extra, (code, text) in errors:
        last = text.splitlines()[-1]
        assert code, part
        assert f"{part} needs " in last, text
        assert f"pip install 'jobsetpy[{extra}]'" in last
    assert "re2" in errors[1][2][1]
    assert "attrs" not in errors[1][2][1], "attrs is installed"

    assert bare("runtime", "python", "-W", "error", "-c", LIBRARY) == (0, "")
    assert bare("runtime", "jobsetpy", "run", "--help")[0] == 0
    code, text = bare("runtime", "python", "-c", "import jobsetpy.serving.certificates")
    assert code
    assert "pip install 'jobsetpy[webhooks]'" in text
    assert bare("webhooks", "python", "-c", "import jobsetpy.serving.certificates") == (0, "")
    sample = str(ROOT / "config" / "samples" / "simple.yaml")
    assert bare("kubectl", "kubectl-jobset", "lint", sample)[0] == 0
    assert bare("manager", "jobsetpy", "manager", "--help")[0] == 0


def test_the_wheel_has_types(python, tmp_path):
    """A controller passes a strict check against the wheel alone, and misspelt fields are found."""
    shutil.copy(ROOT / "examples" / "failed_pod_counter.py", tmp_path / "good.py")
    (tmp_path / "bad.py").write_text(MISUSE)
    mypy = (sys.executable, "-m", "mypy", "--config-file=", "--strict", "--no-pretty")
    words = ("--no-error-summary", "--python-executable", python, "--cache-dir", tmp_path / "cache")
    done = run(*mypy, *words, "good.py", "bad.py", timeout_s=240, cwd=tmp_path)
    lines = (done.stdout + done.stderr).splitlines()
    places = dict.fromkeys(line.partition(": ")[0] for line in lines)
    assert list(places) == [f"bad.py:{at}" for at in range(5, 9)]
    assert '"no_such_method"' in lines[0]
    assert "Result" in lines[1]
    assert 'Extra key "replcas" for TypedDict "DeploymentSpec"' in lines[2]
    assert 'Unexpected keyword argument "nme"' in lines[3]

"""The agent as a process: its imports, its end, and the content of its image."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import jobsetpy
from support import patience

PACKAGE = Path(jobsetpy.__file__).parent
CONTAINERFILE = PACKAGE.parents[1] / "Containerfile"
FORBIDDEN = {"attr", "attrs", "structlog", "prometheus_client", "kubernetes_asyncio", "aiohttp"}
ENVIRONMENT = {
    "NAMESPACE": "train",
    "POD_NAME": "p-0",
    "JOBSET_NAME": "js",
    "KUBERNETES_SERVICE_HOST": "127.0.0.1",
    "KUBERNETES_SERVICE_PORT": "1",
    "BARRIER_BIND_ADDRESS": "127.0.0.1",
    "BARRIER_PORT": "0",
    "SERVICE_ACCOUNT_DIR": "/nonexistent",
    "ARRIVAL_FILE": "/nonexistent/arrival",
    "PATH": os.environ["PATH"],
}
DEFERRED = [
    "base64",
    "inspect",
    "linecache",
    "locale",
    "platform",
    "subprocess",
    "textwrap",
    "tokenize",
]
STANDARD_LIBRARY = """
    abc array asyncio atexit bisect builtins codecs collections concurrent contextlib
    contextvars copy copyreg dataclasses datetime decimal encodings enum errno functools gc
    genericpath heapq importlib io itertools keyword logging marshal math numbers operator os
    posix posixpath random re reprlib select selectors signal socket ssl stat string sys
    threading time traceback types typing uuid warnings weakref zipimport
"""
MODULES = """
import sys
from jobsetpy.agent import __main__
__main__._load()
kinds = {name: type(module) is __main__.Deferred for name, module in sys.modules.items()}
print(sorted(name for name in kinds if not kinds[name]))
print(sorted(name for name in kinds if kinds[name]))
"""
USE_DEFERRED = """
from jobsetpy.agent import __main__
__main__._load()
import base64, inspect, platform, subprocess, sys, traceback
print(platform.system() in platform.platform(), subprocess.run(["true"]).returncode, subprocess.PIPE)
print([*inspect.signature(lambda a, b: 0).parameters], base64.b64encode(b"x"))
try:
    1 / 0
except ZeroDivisionError:
    print(traceback.format_exc().splitlines()[-1])
print(type(sys.modules["inspect"]).__name__, type(sys.modules["linecache"]).__name__)
"""
TERM_WHILE_LOADING = """
import os, signal, sys
class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == "asyncio":
            os.kill(os.getpid(), signal.SIGTERM)
sys.meta_path.insert(0, Interrupt())
from jobsetpy.agent import __main__
__main__._start()
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a module path like that of the agent's image, with the parts the Containerfile copies."""
    folder = tmp_path_factory.mktemp("app")
    [parts] = re.findall(r"cp -r (.+) /app/jobsetpy/", CONTAINERFILE.read_text())
    (folder / "jobsetpy").mkdir()
    ignore = shutil.ignore_patterns("__pycache__")
    for part in parts.split():
        source, target = PACKAGE / part, folder / "jobsetpy" / part
        if source.is_dir():
            shutil.copytree(source, target, ignore=ignore)
        else:
            shutil.copy(source, target)
    for name in ("h11", "msgspec"):
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        (folder / name).symlink_to(Path(spec.origin).parent)
    return folder


def python(image: Path, *arguments: str, **environ: str) -> subprocess.Popen[bytes]:
    """Start Python as the image's entry point does."""
    return subprocess.Popen(
        [sys.executable, "-s", "-S", "-OO", *arguments],
        env={"PYTHONPATH": str(image), "PYTHONDONTWRITEBYTECODE": "1", **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
    )


def finished(process: subprocess.Popen[bytes]) -> tuple[int, str, list[dict[str, object]]]:
    """Return exit code, standard output, and the log."""
    out, err = process.communicate(timeout=patience.scaled(20))
    return process.returncode, out.decode(), [json.loads(line) for line in err.splitlines()]


@pytest.fixture(scope="module", params=["sidecar", "supervise"])
def modules(image: Path, request: pytest.FixtureRequest) -> tuple[list[str], list[str]]:
    """Return modules that are loaded when the agent starts its work, and deferred ones."""
    code, out, _ = finished(python(image, "-c", MODULES, request.param))
    assert code == 0
    loaded, deferred = map(ast.literal_eval, out.splitlines())
    return loaded, deferred


def test_agent_imports_only_listed_packages(modules: tuple[list[str], list[str]]) -> None:
    """Each restart pays for every import: this list grows only on purpose."""
    loaded, deferred = modules
    packages = {name.partition(".")[0] for name in loaded}
    own = {".".join(name.split(".")[:2]) for name in loaded if name.startswith("jobsetpy.")}

    assert packages - set(sys.stdlib_module_names) - {"__main__"} == {"h11", "jobsetpy", "msgspec"}
    assert own == {
        "jobsetpy._lazy",
        "jobsetpy.agent",
        "jobsetpy.aio",
        "jobsetpy.api",
        "jobsetpy.client",
        "jobsetpy.errors",
        "jobsetpy.informers",
    }
    assert not packages & FORBIDDEN
    assert set(deferred) == set(DEFERRED)
    assert "jobsetpy.api.annotations" not in loaded
    assert len({"jobsetpy.agent.sidecar", "jobsetpy.agent.supervisor"} & {*loaded}) == 1


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="asyncio's own imports differ")
def test_agent_imports_only_listed_modules_of_the_standard_library(
    modules: tuple[list[str], list[str]],
) -> None:
    """The list is that of the Python version in the image."""
    packages = {name.partition(".")[0] for name in modules[0]}
    public = {name for name in packages & set(sys.stdlib_module_names) if name[0] != "_"}

    assert sorted(public) == STANDARD_LIBRARY.split()


def test_deferred_modules_are_loaded_when_they_are_used(image: Path) -> None:
    """Code that handles a failure may need them."""
    code, out, _ = finished(python(image, "-c", USE_DEFERRED))

    assert code == 0
    assert out.splitlines() == [
        "True 0 -1",
        "['a', 'b'] b'eA=='",
        "ZeroDivisionError: division by zero",
        "module module",
    ]


def test_missing_variable_is_named(image: Path) -> None:
    """The exit code is 2, and the log has one line."""
    process = python(image, "-m", "jobsetpy.agent", NAMESPACE="train", POD_NAME="p-0")
    code, _, [line] = finished(process)

    assert code == 2
    assert line["event"] == "wrong configuration"
    assert line["error"] == "not set in the environment: JOBSET_NAME"


def test_argument_that_is_no_mode_is_named(image: Path) -> None:
    """Variables configure the agent; the exit code is that of a wrong configuration."""
    code, _, [line] = finished(python(image, "-m", "jobsetpy.agent", "--barrier-port=1"))

    assert code == 2
    assert "'--barrier-port=1'; variables configure it" in line["error"]


def test_agent_fails_when_its_port_is_taken(image: Path) -> None:
    """The kubelet restarts it with back-off, and the log has the reason."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        process = python(image, "-m", "jobsetpy.agent", **{**ENVIRONMENT, "BARRIER_PORT": port})
        code, _, lines = finished(process)

    assert code == 1
    assert lines[-1]["event"] == "cannot serve the barrier"
    assert lines[-1]["port"] == int(port)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_agent_immediately(image: Path, number: signal.Signals) -> None:
    """Before the lift and without an API server, the exit code is 0."""
    process = python(image, "-m", "jobsetpy.agent", **ENVIRONMENT)
    assert process.stderr is not None
    while b'"started"' not in (line := process.stderr.readline()):
        assert line, "the agent ended"
    process.send_signal(number)
    process.communicate(timeout=patience.scaled(20))

    assert process.returncode == 0


def test_signal_ends_the_agent_while_it_loads_modules(image: Path) -> None:
    """A container's first process needs a handler before anything is imported."""
    code, _, lines = finished(python(image, "-c", TERM_WHILE_LOADING, **ENVIRONMENT))

    assert code == 0
    assert lines == []


def test_log_has_no_token(image: Path, tmp_path: Path) -> None:
    """It reports that the API server fails, without credentials."""
    (tmp_path / "token").write_text("very-secret")
    environ = {**ENVIRONMENT, "SERVICE_ACCOUNT_DIR": str(tmp_path)}
    process = python(image, "-m", "jobsetpy.agent", **environ)
    assert process.stderr is not None
    lines = [process.stderr.readline() for _ in range(3)]
    process.terminate()
    process.communicate(timeout=patience.scaled(20))

    assert any(b"cannot watch the JobSet" in line for line in lines)
    assert not any(b"very-secret" in line for line in lines)

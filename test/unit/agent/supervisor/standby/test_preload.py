"""The launcher that preloads for Python programs, which must not notice it."""

from __future__ import annotations

import ast
import os
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobsetpy.agent.supervisor.standby import preload
from jobsetpy.agent.supervisor.standby import process as standby_process
from jobsetpy.api.python_command import split_python
from support import patience

LAUNCHER = Path(standby_process.__file__).with_name("preload.py")
PACKAGE = LAUNCHER.parents[3]
SHOW = """
import os, sys
print(__name__, __file__, __package__, __spec__ and __spec__.name, __doc__, __builtins__ is not None)
print(sys.argv, sys.path[0], sys.orig_argv[1:])
print(sorted(globals()), sys.modules["__main__"].__dict__ is globals())
print(sorted(name for name in os.environ if name.startswith("JOBSET_")))
"""
SPAWN = """
import multiprocessing, os
def work(number):
    return number + 1
class Thing: pass
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(work, [1, 2]), type(pool.apply(Thing)))
"""
FAILS = "def f():\n    raise ValueError('no')\n\nf()\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with programs of all kinds."""
    for name, text in {
        "show.py": f'"""Shows."""{SHOW}', "spawn.py": SPAWN, "fails.py": FAILS,
        "exits.py": "import sys; sys.exit(7)", "syntax.py": "a = = 1\n",
        "says.py": "import sys; sys.exit('what it says')",
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text)
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(SHOW)
    (package / "fails.py").write_text(FAILS)
    (tmp_path / "link.py").symlink_to(package / "__main__.py")
    with zipfile.ZipFile(tmp_path / "show.zip", "w") as archive:
        archive.writestr("__main__.py", SHOW)
    return tmp_path


def run(folder: Path, *command: str, **environ: str) -> tuple[int, str, str]:
    """Return exit code, output and errors of a command."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=os.environ | environ,
        timeout=patience.scaled(60),
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "show.py -m --lr 1", "./show.py", "-u -W ignore show.py", "link.py", "-I show.py",
        "-m package a b", "-m show", "-m package.fails", "package", "show.zip x", "-P show.py",
        "fails.py", "exits.py", "says.py", "syntax.py", "spawn.py", "missing.py", "-m missing",
    ],
)  # fmt: skip
def test_program_started_cold_behaves_as_without_the_launcher(folder: Path, words: str) -> None:
    """It has the same globals, arguments, paths, tracebacks and exit code."""
    plain = [sys.executable, *words.split()]
    launched = standby_process.with_launcher(plain, "auto,json", str(folder / "list"))
    assert not isinstance(launched, str)

    assert run(folder, *launched) == run(folder, *plain)


@pytest.mark.parametrize("file", standby_process.LAUNCHED)
def test_launcher_runs_on_old_versions_of_python(file: str) -> None:
    """The worker's image may have Python 3.8: no later syntax, and no module of ours."""
    tree = ast.parse((PACKAGE / file).read_text(), feature_version=(3, 8))
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {
        alias.name if isinstance(node, ast.Import) else str(node.module)
        for node in imports
        for alias in node.names
    }

    allowed = set(sys.stdlib_module_names)
    if file.startswith("warm/"):
        allowed |= {"torch", "jax", "numpy"}
    assert {name.partition(".")[0] for name in names} <= allowed


STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    """End what a test that fails has left: its pipes would fail another test."""
    yield
    while STARTED:
        with STARTED.pop() as process:
            process.kill()


def stand_by(
    folder: Path, modules: str, program: str, launcher: Path = LAUNCHER, **environ: str
) -> tuple[subprocess.Popen[str], socket.socket]:
    """Start a launcher and wait until it is ready; return it and its channel."""
    ours, theirs = socket.socketpair()
    modules, _, learned = modules.partition("@")
    words = standby_process.with_launcher([sys.executable, *program.split()], modules, learned)
    with theirs:
        process = subprocess.Popen(
            [str(launcher) if word == str(LAUNCHER) else word for word in words],
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            pass_fds=[theirs.fileno()],
            env=os.environ | {"JOBSET_STANDBY_FD": str(theirs.fileno())} | environ,
        )  # fmt: skip
    STARTED.append(process)
    ours.settimeout(patience.scaled(60))
    assert ours.recv(64) == b"ready\n"
    return process, ours


def test_standby_runs_its_program_when_it_is_released(folder: Path) -> None:
    """Listed modules are imported before; their output is held back and prefixed."""
    (folder / "heavy.py").write_text("import os; os.write(2, b'native\\n'); print('warm')\n")
    (folder / "train.py").write_text(
        "import sys, os; print('heavy' in sys.modules, os.environ['JOBSET_EPOCH'], "
        "os.environ['MASTER_PORT'], sys.argv)"
    )
    process, channel = stand_by(folder, "heavy,no.such", "train.py 1")
    assert process.stderr is not None
    first = process.stderr.readline()  # a mistake in the list is reported before the first failure
    assert "jobset standby: cannot preload 'no.such': ModuleNotFoundError" in first
    out, err = release(process, channel, "epoch=3 MASTER_PORT=29530")

    assert (process.returncode, out) == (0, "True 3 29530 ['train.py', '1']\n")
    lines = err.splitlines()
    assert all(line.startswith("jobset standby: ") for line in lines)
    assert {"jobset standby: native", "jobset standby: warm"} <= set(lines)


def test_standby_has_the_environment_of_a_program_started_cold(folder: Path) -> None:
    """Only the epoch is added."""
    process, channel = stand_by(folder, "", "show.py -m")
    out, err = release(process, channel, "epoch=3")

    plain = run(folder, sys.executable, "show.py", "-m", JOBSET_EPOCH="3")
    assert (process.returncode, out, err) == plain


def test_standby_ends_with_its_supervisor(folder: Path) -> None:
    """At the end of the file it exits with 0 and prints nothing."""
    process, channel = stand_by(folder, "json", "show.py")
    channel.close()
    out, err = process.communicate(timeout=patience.scaled(60))

    assert (process.returncode, out, err) == (0, "", "")


def set_rank(monkeypatch: pytest.MonkeyPatch, address: str, port: object) -> None:
    """Give this process rank 1, and the address of rank 0."""
    for name, value in (("RANK", "1"), ("MASTER_ADDR", address), ("MASTER_PORT", str(port))):
        monkeypatch.setenv(name, value)


def test_released_process_waits_for_the_port_of_the_first_rank(folder: Path) -> None:
    """Rank 1 looks up rank 0, which does not listen yet, and connects when it does."""
    patched = folder / "patched.py"  # a busy machine may need longer than the shipped limit
    limit = f"MASTER_WAIT_S = {patience.scaled(60)}"
    patched.write_text(LAUNCHER.read_text().replace("MASTER_WAIT_S = 0.5", limit))
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = str(server.getsockname()[1])
        rank = {"RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        process, channel = stand_by(folder, "", "exits.py", patched, **rank)
        with channel:
            channel.send(b"run epoch=3\n")
            server.listen()
            server.settimeout(patience.scaled(60))
            server.accept()[0].close()
            process.communicate(timeout=patience.scaled(60))

    assert process.returncode == 7


def test_first_rank_is_tried_once_when_the_lookup_took_the_whole_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy node a lookup may take that long; the port may be open since."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        set_rank(monkeypatch, *server.getsockname())
        found = [(socket.AF_INET, server.getsockname())]
        monkeypatch.setattr(preload, "_look_up", lambda *_: found)
        monkeypatch.setattr(preload, "MASTER_WAIT_S", 0.0)
        preload._await_first_rank()
        server.settimeout(0)
        server.accept()[0].close()


def test_first_rank_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank connects repeatedly, but sends one query to the cluster's DNS."""
    queries = []

    def look_up(*where: object, **more: Any) -> Any:
        queries.append(where)
        return real(*where, **more)

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    set_rank(monkeypatch, "127.0.0.1", port)
    monkeypatch.setattr(preload, "MASTER_WAIT_S", 0.1)
    preload._await_first_rank()

    assert queries == [(b"127.0.0.1", port)]


def test_wait_for_the_first_rank_ends_when_dns_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lookup has no timeout, but the wait has one."""
    silent, queried, answered = threading.Event(), threading.Event(), threading.Event()

    def never(*_where: object, **_more: Any) -> Any:
        queried.set()
        silent.wait(patience.scaled(60))
        answered.set()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", never)
    set_rank(monkeypatch, "rank0.invalid", 29500)
    monkeypatch.setattr(preload, "MASTER_WAIT_S", 0.1)
    preload._await_first_rank()
    waited = queried.is_set() and not answered.is_set()
    silent.set()

    assert waited


@pytest.mark.parametrize(("host", "port"), [("a..b", "1"), ("127.0.0.1", "9" * 9)])
def test_invalid_address_is_not_waited_for(
    host: str, port: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program reports it."""
    set_rank(monkeypatch, host, port)

    preload._await_first_rank()


def test_launcher_stands_between_the_interpreters_options_and_the_program() -> None:
    """The command with it is still one of Python."""
    words = standby_process.with_launcher(["python3", "-u", "-m", "pkg", "-u"], "torch")

    assert words == ["python3", "-u", str(LAUNCHER), "torch", "-m", "pkg", "-u"]
    assert not isinstance(split_python(words), str)


# ---- learned imports

TRAIN = """
import importlib.util, os, sys
os.environ["HEAVY_MODE"] = "fast"
import heavy, mine
importlib.util.find_spec("searched")
del os.environ["HEAVY_MODE"]
from heavy import lazy
import json.tool
print(sorted({"heavy", "heavy.lazy", "mine", "searched"} & BEFORE), heavy.MODE,
      os.environ.get("HEAVY_MODE"), os.environ.get("SET_BY_HEAVY"), flush=True)
"""
TRAIN = "import sys; BEFORE = set(sys.modules)\n" + TRAIN


@pytest.fixture
def installed(folder: Path) -> Path:
    """Return a folder of installed packages, next to a program that uses them."""
    packages = folder / "site-packages"
    (packages / "heavy").mkdir(parents=True)
    (packages / "heavy" / "__init__.py").write_text(
        "import os; MODE = os.environ.get('HEAVY_MODE'); os.environ['SET_BY_HEAVY'] = 'yes'\n"
        "from heavy import part\n"
    )
    (packages / "heavy" / "part.py").write_text("")
    (packages / "heavy" / "lazy.py").write_text("")
    (packages / "searched.py").write_text("")
    (folder / "mine.py").write_text("")
    (folder / "train.py").write_text(TRAIN)
    return packages


def launch(installed: Path) -> tuple[int, str, str]:
    """Run the program once without a standby; its imports are saved in ``list``."""
    words = standby_process.with_launcher(
        [sys.executable, "train.py"], "auto", str(installed.parent / "list")
    )
    return run(installed.parent, *words, PYTHONPATH=str(installed))


def stand_by_learned(
    installed: Path, modules: str = ""
) -> tuple[subprocess.Popen[str], socket.socket]:
    """Start a launcher that imports the modules in ``list``, or given ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(installed))
        return stand_by(
            installed.parent, modules or f"auto@{installed.parent / 'list'}", "train.py"
        )


def release(
    process: subprocess.Popen[str], channel: socket.socket, variables: str = "epoch=2"
) -> tuple[str, str]:
    """Release a standby; return its output and errors."""
    with channel:
        channel.send(f"run {variables}\n".encode())
        return process.communicate(timeout=patience.scaled(60))


def test_standby_imports_the_modules_that_its_program_imported(installed: Path) -> None:
    """Installed modules only, with the variables that the program had set for them."""
    assert launch(installed) == (0, "[] fast None yes\n", "")
    out, err = release(*stand_by_learned(installed))

    assert (out, err) == ("['heavy', 'heavy.lazy'] fast None yes\n", "")


@pytest.mark.parametrize(
    ("metadata", "expected"), [(True, "['heavy', 'heavy.lazy']"), (False, "[]")]
)
def test_packages_in_another_folder_are_imported_when_pip_put_them_there(
    installed: Path, metadata: bool, expected: str
) -> None:
    """``pip install --target`` leaves metadata there; a folder of sources has none."""
    packages = installed.rename(installed.parent / "dependencies")
    if metadata:
        (packages / "heavy-1.0.dist-info").mkdir()
    launch(packages)
    out, err = release(*stand_by_learned(packages))

    assert (out, err) == (f"{expected} fast None yes\n", "")


def test_second_run_adds_nothing_to_the_list(installed: Path) -> None:
    """Neither modules of the list nor the variables of imports that are known."""
    launch(installed)
    before = (installed.parent / "list").read_text()
    launch(installed)

    assert (installed.parent / "list").read_text() == before
    names = [line.partition("\t")[0] for line in before.splitlines()]
    assert [name for name in names if "heavy" in name.lower()] == [
        "=HEAVY_MODE", "heavy", "=SET_BY_HEAVY", "heavy.part", "=HEAVY_MODE", "heavy.lazy",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("raise ValueError('not today')", "ValueError: not today"),
        ("import threading as t; t.Timer(99, print).start()", "leaves behind thread"),
        ("import socket; S = socket.create_server(('127.0.0.1', 0))", "leaves behind port"),
        ("F = open(__file__ + '.log', 'w')", "bad.py.log"),
        ("import subprocess; P = subprocess.Popen(['sleep', '1'])", "leaves behind process"),
        ("F = open('/dev/loop-control')", "/dev/loop-control"),
    ],
    ids=["raises", "thread", "port", "file", "process", "device"],
)  # fmt: skip
def test_unfit_module_is_named_and_left_out(installed: Path, text: str, why: str) -> None:
    """The process starts again without it, so that it leaves no trace; the others are imported."""
    if "loop-control" in text and not os.access("/dev/loop-control", os.R_OK):
        pytest.skip("no such device here")
    (installed / "bad.py").write_text(
        f"import os\nif 'JOBSET_STANDBY_FD' in open('/proc/self/environ').read():\n    {text}\n"
    )
    program = installed.parent / "train.py"
    program.write_text("import sys; print('bad' in sys.modules)\nimport bad\n" + TRAIN)
    launch(installed)
    process, channel = stand_by_learned(installed)
    assert process.stderr is not None
    line = process.stderr.readline()
    program.write_text("import sys; print(sorted({'bad', 'heavy'} & set(sys.modules)))")
    out, _ = release(process, channel)

    assert "cannot preload 'bad'" in line
    assert why in line
    assert out == "['heavy']\n"


def test_module_that_ends_the_process_is_left_out_at_the_third_start(installed: Path) -> None:
    """So is one that hangs, since the supervisor kills the process."""
    (installed / "bad.py").write_text(
        "import os\nif 'JOBSET_STANDBY_FD' in open('/proc/self/environ').read(): os._exit(5)\n"
    )
    (installed.parent / "train.py").write_text("import bad\nimport json.tool\n")
    launch(installed)
    learned = str(installed.parent / "list")
    words = standby_process.with_launcher([sys.executable, "train.py"], "auto", learned)
    given = {"PYTHONPATH": str(installed), "JOBSET_STANDBY_FD": "99"}
    assert [run(installed.parent, *words, **given)[0] for _ in range(2)] == [5, 5]
    _, err = release(*stand_by_learned(installed))

    assert "found unfit before, and not preloaded: bad" in err


def test_standby_imports_modules_that_are_added_to_the_list(installed: Path) -> None:
    """A program may import for minutes, and more after its first checkpoint."""
    mark = installed / "heavy" / "lazy.mark"
    (installed / "heavy" / "lazy.py").write_text(f"open({str(mark)!r}, 'w').close()")
    process, channel = stand_by_learned(installed)
    launch(installed)
    mark.unlink()
    patience.wait_for(mark.exists, seconds=30)
    out, err = release(process, channel)

    assert (process.returncode, err) == (0, "")
    assert "heavy" in out.partition("]")[0]


def test_process_that_starts_again_reports_that_it_is_ready_once(installed: Path) -> None:
    """The contract has no second report: with one, no standby process would be started."""
    (installed / "bad.py").write_text("import os; S = os.environ.get('UNSET') or 1 / 0")
    (installed.parent / "train.py").write_text(f"try: import bad\nexcept Exception: pass\n{TRAIN}")
    process, channel = stand_by_learned(installed)
    (installed.parent / "list").write_text(f"bad\t{installed}/bad.py\n")
    unfit = installed.parent / "list.unfit"
    patience.wait_for(unfit.exists, seconds=30)
    channel.send(b"run epoch=2\n")
    out, err = process.communicate(timeout=patience.scaled(60))
    with channel:
        rest = channel.recv(64)

    assert (process.returncode, rest) == (0, b"")
    assert out.endswith("fast None yes\n")
    assert "cannot preload 'bad': ZeroDivisionError" in err


def test_module_that_the_program_could_not_import_is_not_preloaded(installed: Path) -> None:
    """Programs try packages that may be missing."""
    (installed / "optional.py").write_text("import searched, absent")
    text = "try: import optional\nexcept ImportError: pass\n"
    (installed.parent / "train.py").write_text(text + TRAIN)
    launch(installed)
    out, err = release(*stand_by_learned(installed))

    assert (out, err) == ("['heavy', 'heavy.lazy', 'searched'] fast None yes\n", "")


def test_list_that_is_a_link_is_not_read(installed: Path) -> None:
    """The folder may be shared with other users."""
    launch(installed)
    real = (installed.parent / "list").rename(installed.parent / "elsewhere")
    (installed.parent / "list").symlink_to(real)
    out, _ = release(*stand_by_learned(installed))

    assert out.startswith("[] ")


def test_torch_2_is_preloaded_with_dynamo(installed: Path) -> None:
    """The first DistributedDataParallel imports it, which takes more than a second."""
    (installed / "torch").mkdir()
    (installed / "torch" / "__init__.py").write_text("__version__ = '2.8.0+cpu'")
    (installed / "torch" / "_dynamo.py").write_text("")
    (installed.parent / "train.py").write_text("import sys; print('torch._dynamo' in sys.modules)")
    out, err = release(*stand_by_learned(installed, "torch"))

    assert (out, err) == ("True\n", "")


@pytest.mark.parametrize("by_hand", [True, False])
def test_warm_up_runs_in_the_standby(installed: Path, by_hand: bool) -> None:
    """It is in the list by its name, or the program was seen to import the framework."""
    (installed / "torch").mkdir()
    (installed / "torch" / "__init__.py").write_text(
        "__version__ = '1.13'\ndef get_rng_state():\n    print('warm')\n    raise SystemExit\n"
    )
    (installed.parent / "train.py").write_text("import torch\nimport json.tool\n")
    modules = "jobsetpy.warm.torch" if by_hand else ""
    if not by_hand:
        launch(installed)
    _, err = release(*stand_by_learned(installed, modules))

    assert "jobset standby: warm\n" in err
    assert "cannot preload 'jobsetpy.warm.torch': SystemExit" in err

"""The agent's installed copy, which runs without any file of its source."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import jobsetpy.agent

SOURCE = Path(__file__).parents[3] / "hack" / "images" / "supervise.c"
FREESTANDING = ["-static", "-nostdlib", "-ffreestanding", "-fno-builtin", "-fno-stack-protector"]
REQUIRED = {"NAMESPACE": "a", "POD_NAME": "b", "JOBSET_NAME": "c"}


def run(*words: str | Path, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command without variables; return its output."""
    options = {"env": {}} | options
    return subprocess.run(words, check=check, capture_output=True, text=True, **options)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an installed tree, made under a umask that hides files from other users."""
    folder = tmp_path_factory.mktemp("tree") / "agent"
    words = (sys.executable, "-s", "-OO", "-m", "jobsetpy.agent", "install", folder)
    done = run(*words, env=None, umask=0o077)
    assert done.stdout == ""
    assert "MB" in done.stderr
    return folder


def by_hand(tree: Path) -> list[str]:
    """Return the documented command line without the launcher."""
    python = f"{tree}/bin/python3"
    linker = [f"{tree}/ld.so", "--inhibit-cache", "--library-path", f"{tree}/lib"]
    return [*linker, "--argv0", python, python, "-I", "-S", "-OO", f"{tree}/app"]


def test_installed_agent_starts_from_its_own_files(tree: Path) -> None:
    """Interpreter, modules and libraries are copies; the error is about missing variables."""
    done = run(*by_hand(tree), "supervise", "--", "true", check=False)

    assert done.returncode == 2
    assert "NAMESPACE, POD_NAME, JOBSET_NAME" in json.loads(done.stderr)["error"]


def test_links_are_replaced_when_another_version_was_installed(tree: Path, tmp_path: Path) -> None:
    """The folder outlives a restart of its node, after which the agent's image may be newer."""
    links = {path.name: path.readlink() for path in (tree / "lib").iterdir() if path.is_symlink()}
    assert links
    (tmp_path / "lib").mkdir()
    for name in links:
        (tmp_path / "lib" / name).symlink_to("older")
    run(sys.executable, "-s", "-OO", "-m", "jobsetpy.agent", "install", tmp_path, env=None)

    assert {name: (tmp_path / "lib" / name).readlink() for name in links} == links


def test_all_modules_of_supervisors_are_copied(tree: Path) -> None:
    """So are those that are imported late; modules of the other modes are not needed."""
    source = Path(jobsetpy.agent.__file__).parent
    modules = [
        path.relative_to(source)
        for folder in ("protocol", "supervisor")
        for path in (source / folder).rglob("*.py")
    ]
    copied = tree / "app/jobsetpy/agent"
    missing = [str(path) for path in modules if not list(copied.glob(f"{path.with_suffix('')}.*"))]

    assert modules
    assert missing == []


def test_only_files_of_the_tree_are_mapped(tree: Path) -> None:
    """Everything that is ever needed is loaded."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import jobsetpy.agent.supervisor.supervisor, traceback;"
        "import encodings.idna, inspect, subprocess;"
        "print(*{line.split()[5] for line in open('/proc/self/maps') if ' /' in line}, sep='\\n')"
    )
    done = run(*by_hand(tree)[:-1], "-c", program, f"{tree}/app")
    mapped = {line for line in done.stdout.splitlines() if ".so" in line or "/bin/" in line}

    assert mapped
    assert {line for line in mapped if not line.startswith(str(tree))} == set()


def test_copied_launcher_preloads_for_another_python(tree: Path, tmp_path: Path) -> None:
    """The copied supervisor puts it before a program."""
    (tmp_path / "train.py").write_text("import sys; print('json' in sys.modules, sys.argv)")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from jobsetpy.agent.supervisor.standby import process as standby;"
        "print(*standby.with_launcher(sys.argv[2:], 'auto,json', '/none'), sep='\\n')"
    )
    script = (sys.executable, tmp_path / "train.py", "1")
    command = run(*by_hand(tree)[:-1], "-c", program, f"{tree}/app", *script)
    words = command.stdout.splitlines()
    done = run(*words, env=None)

    assert any(word.startswith(str(tree)) for word in words)
    assert {path.name for path in (tree / "app/jobsetpy/warm").iterdir()} == {"torch.py", "jax.py"}
    assert done.stdout == f"False {[str(tmp_path / 'train.py'), '1']}\n"


def test_every_user_may_read_the_tree(tree: Path) -> None:
    """Workers run as any user."""
    modes = {path: path.stat().st_mode & 0o777 for path in [tree, *tree.rglob("*")]}

    assert [path for path, mode in modes.items() if mode & 0o044 != 0o044] == []
    assert not [path for path, mode in modes.items() if path.is_dir() and mode != 0o755]


def test_installation_fails_when_the_folder_cannot_be_written(tmp_path: Path) -> None:
    """It has exit code 1 and a reason."""
    (tmp_path / "file").touch()
    words = (sys.executable, "-m", "jobsetpy.agent", "install", tmp_path / "file" / "x")
    done = run(*words, env=None, check=False)

    assert done.returncode == 1
    assert "cannot install into" in done.stderr


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_launcher_passes_arguments_and_environment(tree: Path, tmp_path: Path) -> None:
    """Variables of the dynamic linker are renamed so that the agent's own linker ignores them."""
    shown = tmp_path / "agent"
    shutil.copytree(tree / "lib", shown / "lib")
    shutil.copytree(tree / "bin", shown / "bin")
    shutil.copy(tree / "ld.so", shown / "ld.so")
    (shown / "app").mkdir()
    (shown / "app" / "__main__.py").write_text(
        "import sys\nprint(sys.argv[1:])\nprint(open('/proc/self/environ').read().split('\\0'))\n"
    )
    subprocess.run(["gcc", *FREESTANDING, "-o", shown / "supervise", SOURCE], check=True)
    environ = {"A": "1", "LD_PRELOAD": "/none.so", "GLIBC_TUNABLES": "x=y", "GLIBC": "2"}
    done = run(shown / "supervise", "sh", "-c", "x y", "", env=environ)
    arguments, variables = map(eval, done.stdout.splitlines())

    assert done.stderr == ""
    assert arguments == ["supervise", "--", "sh", "-c", "x y", ""]
    aside = "JOBSETPY_SET_ASIDE_"
    expected = ["A=1", f"{aside}LD_PRELOAD=/none.so", f"{aside}GLIBC_TUNABLES=x=y", "GLIBC=2"]
    assert sorted(filter(None, variables)) == sorted(expected)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_launcher_adopts_orphans(tree: Path, tmp_path: Path) -> None:
    """Descendants without a parent become its children, even if it is not the first process."""
    shown = tmp_path / "agent"
    shutil.copytree(tree, shown)
    (shown / "app" / "__main__.py").write_text(
        "import os\nif not os.fork():\n    os.fork()\n    os._exit(0)\n"
        "os.wait()\nos.wait()\nprint('both')\n"
    )
    subprocess.run(["gcc", *FREESTANDING, "-o", shown / "supervise", SOURCE], check=True)
    done = run(shown / "supervise", "x", check=False)

    assert (done.stdout, done.stderr) == ("both\n", "")


def test_variables_set_aside_are_restored(tree: Path) -> None:
    """The worker gets those that the launcher renamed under their own names."""
    code = "from jobsetpy.agent.supervisor.worker.processes import original_environ as o; print(sorted(o().items()))"
    environ = {"JOBSETPY_SET_ASIDE_LD_PRELOAD": "x", "B": "2"}
    done = run(sys.executable, "-c", code, env=environ)

    assert eval(done.stdout) == [(b"B", b"2"), (b"LD_PRELOAD", b"x")]
    assert "LC_CTYPE" not in done.stdout

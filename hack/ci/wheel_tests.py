"""Users' programs with the installed wheel, on each installed Python.

For each interpreter, the wheel is installed into a new environment that does not see the checkout:
`mypy --strict` and pyright check the examples and the tutorial's controller, the tutorial's test
runs, and `jobsetpy rbac` and `crds` print manifests of each example. A second environment has the
wheel without extras, like agents: its size and import times are printed.

    wheel_tests.py                         each of Python 3.11 to 3.14 that is found
    wheel_tests.py --python PROGRAM ...    only these interpreters
    wheel_tests.py --wheel FILE --here     only this interpreter
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
CHECKERS = ("mypy", "pyright[nodejs]", "types-PyYAML", "pytest")
PAGE = ROOT / "docs/tutorial/custom-controller.md"
OWN = {"pip", "setuptools", "wheel"}
TRIES = 7
LIMIT_S = 1200
SHOWN = 3000


class CheckFailedError(Exception):
    """A check failed; the message has its output."""


def run(*words: str | Path, cwd: Path) -> str:
    """Return the output of a command that runs without the checkout's environment.

    Raises:
        CheckFailedError: it failed.
    """
    hidden = {"MYPYPATH", "VIRTUAL_ENV"}
    hidden |= {name for name in os.environ if name.startswith("PYTHON")}
    environ = {name: value for name, value in os.environ.items() if name not in hidden}
    command = [str(word) for word in words]
    done = subprocess.run(
        command, cwd=cwd, env=environ, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    if done.returncode:
        said = f"{done.stdout}{done.stderr}"[-SHOWN:]
        raise CheckFailedError(f"{' '.join(command)} exited with {done.returncode}:\n{said}")
    return done.stdout


def environment(folder: Path, *packages: str) -> Path:
    """Create an environment with some packages; return its folder of programs."""
    run(sys.executable, "-m", "venv", folder, cwd=folder.parent)
    pip = (folder / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check")
    run(*pip, *packages, cwd=folder.parent)
    return folder / "bin"


def users_folder(folder: Path) -> list[Path]:
    """Write users' programs to a folder; return those with type annotations."""
    folder.mkdir()
    for source in (ROOT / "examples").rglob("*.py"):
        shutil.copy(source, folder / source.name)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (folder / "failed_pods.py").write_text(blocks[0])
    programs = sorted(folder.glob("*.py"))
    (folder / "test_failed_pods.py").write_text(blocks[1])
    return programs


def check_programs(wheel: Path, place: Path) -> None:
    """Check users' programs in an environment with the wheel and their dependencies."""
    tools = environment(place / "full", f"{wheel}[webhooks]", *CHECKERS)
    folder = place / "user"
    programs = [path.name for path in users_folder(folder)]
    run(tools / "mypy", "--strict", *programs, cwd=folder)
    run(tools / "pyright", "--pythonpath", tools / "python", *programs, cwd=folder)
    run(tools / "python", "-m", "pytest", "-q", "test_failed_pods.py", cwd=folder)
    for name in (path.removesuffix(".py") for path in programs):
        run(tools / "jobsetpy", "rbac", name, "--name", "user", cwd=folder)
    say(f"mypy --strict and pyright of {len(programs)} programs, a test, manifests: passed")


def measure_plain(wheel: Path, place: Path) -> None:
    """Print the size and import times of the wheel without extras."""
    python = environment(place / "plain", str(wheel)) / "python"
    folder = next((place / "plain/lib").glob("python*/site-packages"))
    sizes = {
        each.name: size_of(each)
        for each in sorted(folder.iterdir())
        if each.name.partition("-")[0] not in OWN and each.name != "__pycache__"
    }
    ours = sum(size for name, size in sizes.items() if name.startswith("jobsetpy"))
    say(f"plain install: {sum(sizes.values()) / 1e6:.1f} MB, jobsetpy {ours / 1e6:.1f} MB of it")
    bare = seconds(python, "pass", place)
    for module in ("jobsetpy", "jobsetpy.agent.main"):
        took = seconds(python, f"import {module}", place) - bare
        say(f"import {module}: {took * 1000:.0f} ms of CPU beyond the {bare * 1000:.0f} of Python")
    full = place / "full/bin/python"
    took = seconds(full, "import jobsetpy.runtime", place) - bare
    say(f"import jobsetpy.runtime, with its extra: {took * 1000:.0f} ms of CPU beyond that")


def size_of(path: Path) -> int:
    """Return the size in bytes of a file or folder, without compiled bytecode."""
    files = [path] if path.is_file() else path.rglob("*")
    return sum(f.stat().st_size for f in files if f.is_file() and f.suffix != ".pyc")


def seconds(python: Path, program: str, place: Path) -> float:
    """Return the median CPU time of a process, except the first, which compiles."""
    times = []
    for _ in range(TRIES):
        before = os.times()
        run(python, "-c", program, cwd=place)
        after = os.times()
        used = after.children_user - before.children_user
        times.append(used + after.children_system - before.children_system)
    return statistics.median(times[1:])


def say(text: str) -> None:
    version = ".".join(map(str, sys.version_info[:3]))
    print(f"Python {version}: {text}", flush=True)


def interpreters() -> dict[str, str | None]:
    """Return the program of each minor version, from pyenv or PATH."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found: dict[str, str | None] = {}
    for version in VERSIONS:
        of_pyenv = sorted(versions.glob(f"{version}.*/bin/python{version}"))
        found[version] = str(of_pyenv[-1]) if of_pyenv else shutil.which(f"python{version}")
    return found


def built(folder: Path) -> Path:
    """Build a wheel of the checkout; return its path."""
    words = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", folder, ROOT)
    run(*words, cwd=folder)
    return next(folder.glob("*.whl"))


def here(wheel: Path) -> int:
    """Check with this interpreter; return the exit code."""
    with tempfile.TemporaryDirectory(prefix="jobsetpy-wheel-") as place:
        try:
            check_programs(wheel, Path(place))
            measure_plain(wheel, Path(place))
        except CheckFailedError as error:
            say(f"FAILED: {error}")
            return 1
    return 0


def everywhere(wheel: Path, programs: Sequence[str]) -> int:
    """Check with each interpreter; return the exit code."""
    failed = 0
    for program in programs:
        words = [program, __file__, "--wheel", str(wheel), "--here"]
        failed += subprocess.run(words, check=False, timeout=2 * LIMIT_S).returncode != 0
    return min(failed, 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--wheel", type=Path, help="the wheel; default: built from the checkout")
    parser.add_argument("--python", nargs="+", help="default: each of 3.11 to 3.14 that is found")
    parser.add_argument("--here", action="store_true", help="use only this interpreter")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="jobsetpy-wheel-") as folder:
        wheel = (options.wheel or built(Path(folder))).resolve()
        if options.here:
            return here(wheel)
        found = {} if options.python else interpreters()
        for version, program in found.items():
            if program is None:
                print(f"Python {version}: not found, not checked", flush=True)
        return everywhere(wheel, options.python or [each for each in found.values() if each])


if __name__ == "__main__":
    sys.exit(main())

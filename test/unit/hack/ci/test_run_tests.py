"""A test that fails once is run again and reported; every other failure fails the run."""

from pathlib import Path

import pytest

from hack.ci import run_tests, units

TESTS = '''
import os
from pathlib import Path

import pytest


def first(name):
    """Return True if this is called for the first time."""
    mark = Path(__file__).with_name(name)
    exists = mark.exists()
    mark.touch()
    return not exists


class TestServers:
    @pytest.mark.parametrize("case", ["changed by@another user"])
    def test_flips(self, case):
        assert not first("flips"), "the first time"

    def test_skips(self):
        if first("skips"):
            raise AssertionError("the first time")
        pytest.skip("the second time")

    def test_fails(self):
        raise AssertionError("each time")

    @pytest.fixture
    def teardown(self):
        yield
        assert not first("down"), "its fixture"

    def test_down(self, teardown):
        pass

    def test_dies(self):
        if first("dies"):
            os._exit(1)

    def test_passes(self):
        assert sum(number % 7 for number in range(2_000_000))
'''

MANY = """
def test_many():
    assert False
"""

FLIPS = "test_it.py::TestServers::test_flips[changed by@another user]"
SKIPS, FAILS, DOWN = (
    f"test_it.py::TestServers::test_{name}" for name in ("skips", "fails", "down")
)
UNSTEADY = "== UNSTEADY: passed at the second try; fix it: "


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Function that runs selected tests; it returns exit code, last lines and all output."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "pytest.ini").write_text("[pytest]\nmarkers = foreign\n  releases\n")
    (project / "test_it.py").write_text(TESTS)
    for at in range(9):
        (project / f"test_many_{at}.py").write_text(MANY)
    monkeypatch.chdir(project)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # a second of CPU each time
    monkeypatch.setattr(units, "LONG_S", 0.0)

    def run(*selected, processes=0, again=True):
        argv = ["-p", "xdist.plugin", "-p", "xdist.looponfail", "-k", " or ".join(selected)]
        ran = run_tests.tests(["."], tmp_path / "cache", argv, processes=processes)
        code = run_tests.subprocess.run(ran.command, check=False).returncode
        code = run_tests.code_of(ran, code, again=again)
        shown, _ = capfd.readouterr()
        lines = shown.splitlines()
        return code, [line for line in lines if line.startswith("== ")], shown

    return run


@pytest.mark.parametrize("processes", [0, 2])
def test_run_passes_when_its_failures_pass_at_the_second_try(run, processes):
    """This holds for failures of tests and of fixtures; the first failure's report is complete."""
    code, end, shown = run("flips", "down", "passes", processes=processes)
    assert code == 0
    assert end[-2:] == [UNSTEADY + DOWN, UNSTEADY + FLIPS]
    assert "AssertionError: the first time" in shown
    assert "AssertionError: its fixture" in shown


def test_run_fails_when_a_test_fails_again_or_skips(run):
    """The last lines name both, before the unsteady test."""
    code, end, _ = run("flips", "skips", "fails")
    assert code == 1
    assert end[-3:] == [f"== FAILED {FAILS}", f"== FAILED {SKIPS}", UNSTEADY + FLIPS]


@pytest.mark.parametrize(("selected", "again", "count"), [("many", True, 9), ("flips", False, 1)])
def test_failures_are_not_run_again_when_many_failed_or_arguments_were_given(
    run, selected, again, count
):
    """Failures in nine files have a common cause; arguments select single tests to examine."""
    code, end, _ = run(selected, again=again)
    assert code == 1
    assert len([line for line in end if line.startswith("== FAILED")]) == count


@pytest.mark.parametrize("processes", [0, 1, 2])
def test_run_fails_when_a_process_dies(run, processes):
    """Its other tests have not run, independent of the second try."""
    code, end, _ = run("passes", "dies", processes=processes)
    assert code != 0
    assert "see above" in end[-1]


def test_unit_is_the_folder_when_it_is_a_package(tmp_path):
    """Otherwise it is the file."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/__init__.py").touch()
    assert units.unit_of("shared/test_a.py::test_one[b::c]", tmp_path) == "shared"
    assert units.unit_of("test_b.py::Test::test_two", tmp_path) == "test_b.py"


def test_tests_with_nodes_are_three_units():
    """The files of two are named, and exist; all others are the third one."""
    root = run_tests.unchanged.ROOT
    parts = {"apart": set(), "first": set(), "last": set()}
    for file in (root / units.NODES).glob("test_*.py"):
        unit = units.unit_of(f"{units.NODES}/{file.name}::test_it", root)
        parts[unit.removeprefix(f"{units.NODES}, ")].add(file.name)

    assert parts["apart"] == {*units.NODES_APART}
    assert parts["first"] == {*units.NODES_FIRST}
    assert parts["last"] > {"test_restart_in_place.py"}


@pytest.mark.usefixtures("run")
def test_tests_of_a_unit_stay_in_one_process(tmp_path):
    """They share a cluster, which each process would start again."""
    runs = """
import os
from pathlib import Path

import pytest


@pytest.mark.parametrize("at", range(8))
def test_of_a_unit(at):
    with Path("processes").open("a") as file:
        print(Path(__file__).stem, os.environ["PYTEST_XDIST_WORKER"], file=file)
"""
    for name in ("test_a.py", "test_b.py"):
        Path(name).write_text(runs)
    argv = ["-p", "xdist.plugin", "-p", "xdist.looponfail"]
    tests = run_tests.tests(["test_a.py", "test_b.py"], tmp_path / "cache", argv, processes=2)
    run_tests.subprocess.run(tests.command, check=True)
    lines = Path("processes").read_text().splitlines()
    assert len(lines) == 16
    assert len(set(lines)) == 2


def test_long_units_come_first_and_divided_ones_last():
    """They are in the order of the list, and every entry exists."""
    first, second = units.LONGEST[:2]
    in_order = [f"{first}/x", f"{second}/x", "test/contract/x", f"{units.DIVIDED[0]}::x"]
    assert [*map(units.order, in_order)] == sorted({*map(units.order, in_order)})
    named = (*units.LONGEST, *units.DIVIDED)
    missing = [each for each in named if not (run_tests.unchanged.ROOT / each).exists()]
    assert missing == []

"""A test that fails once is run again and told of; all else that fails, fails the run."""

import pytest

from hack.ci import run_tests
from hack.ci.groups import Group

SERVERS = Group("with servers", wants=("cluster",))
PURE = Group("without", without=("cluster",))

THROWN_AWAY = '''
from pathlib import Path

import pytest


def first(name):
    """Whether this is called for the first time."""
    mark = Path(__file__).with_name(name)
    there = mark.exists()
    mark.touch()
    return not there


@pytest.mark.cluster
class TestServers:
    @pytest.mark.parametrize("case", ["lifted by somebody else"])
    def test_flips(self, case):
        assert not first("flips"), "the first time"

    def test_skips(self):
        if first("skips"):
            raise AssertionError("the first time")
        pytest.skip("not the second")

    def test_fails(self):
        raise AssertionError("each time")

    @pytest.fixture
    def taken_down(self):
        yield
        assert not first("down"), "its fixture"

    def test_down(self, taken_down):
        pass

    @pytest.mark.parametrize("at", range(9))
    def test_many(self, at):
        assert not first(f"many-{at}")

    def test_dies(self):
        if first("dies"):
            import os
            os._exit(1)

    def test_passes(self):
        pass


def test_pure_flips():
    assert not first("pure")
'''

FLIPS = "test_it.py::TestServers::test_flips[lifted by somebody else]"
SKIPS, FAILS, DOWN, PASSES = (
    f"test_it.py::TestServers::test_{name}" for name in ("skips", "fails", "down", "passes")
)


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Runs groups of throw-away tests as `main` does; the exit code, and what is said at the end."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "pytest.ini").write_text("[pytest]\nmarkers = cluster\n")
    (project / "test_it.py").write_text(THROWN_AWAY)
    monkeypatch.chdir(project)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # a second of CPU each time

    def run(*selected, groups=(SERVERS,), argv=()):
        argv = ["-p", "no:cacheprovider", "-k", " or ".join(selected), *argv]
        results = [
            run_tests.in_foreground(tests, argv, tmp_path / f"first-{at}")
            for at, tests in enumerate(groups)
        ]
        unsteady = run_tests.second_try(results, tmp_path)
        shown, _ = capfd.readouterr()
        code = run_tests.conclude(results, unsteady)
        return code, capfd.readouterr().out.splitlines(), shown

    return run


def test_what_passes_at_the_second_try_is_reported_and_does_not_fail_the_run(run):
    """A failure of the test and one of its fixture; the first failure's report is shown whole."""
    code, end, shown = run("flips", "down", "passes")
    assert code == 0
    last = "== UNSTEADY: passed at the second try; mend it: "
    assert end[-2:] == [last + DOWN, last + FLIPS]
    assert "AssertionError: the first time" in shown
    assert "AssertionError: its fixture" in shown
    assert f"-- {FLIPS}" in end
    assert not [line for line in end if "FAILED" in line]


def test_what_fails_again_or_skips_fails_the_run(run):
    """And is named at the end, after the end of its report."""
    code, end, _ = run("flips", "skips", "fails")
    assert code == 1
    assert end[-3:-1] == [f"== FAILED {SKIPS}", f"== FAILED {FAILS}"]
    assert end[-1].endswith(FLIPS)
    report = end[end.index(f"-- {FAILS}") + 1 :]
    assert report[0].endswith("AssertionError: each time")
    assert len(report) <= 1 + run_tests.outcomes.TAIL + 3


def test_tests_without_servers_are_tried_again(run):
    """Some of them have real processes, which the others' load may starve."""
    code, end, _ = run("flips", groups=(SERVERS, PURE))
    assert code == 0
    assert end[-2:] == [
        f"== UNSTEADY: passed at the second try; mend it: {FLIPS}",
        "== UNSTEADY: passed at the second try; mend it: test_it.py::test_pure_flips",
    ]


def test_many_are_not_tried_again(run):
    """So many fail for a reason."""
    code, end, _ = run("many")
    assert code == 1
    assert len([line for line in end if line.startswith("== FAILED")]) == 9


@pytest.mark.parametrize(
    ("selected", "argv"), [(("flips", "passes"), ["-x"]), (("flips", "dies"), [])]
)
def test_a_run_that_did_not_come_to_its_end_fails(run, selected, argv):
    """What was left out may be broken, whatever the second try says of the rest."""
    code, end, _ = run(*selected, argv=argv)
    assert code == 1
    assert end[-1].endswith(FLIPS)


@pytest.mark.parametrize(("codes", "expected"), [((0, 5), 0), ((5, 5), 5), ((0, 2), 2)])
def test_no_tests_is_no_failure(codes, expected):
    """Where arguments select none of a group; where they select none at all, the caller is told."""
    nothing = run_tests.outcomes.Outcomes(frozenset(), (), complete=True)
    results = [
        run_tests.Result(tests, code, nothing)
        for tests, code in zip((SERVERS, PURE), codes, strict=True)
    ]
    assert run_tests.conclude(results, frozenset()) == expected


@pytest.mark.parametrize(
    ("codes", "expected"), [((0, 0), 0), ((0, 2), 2), ((5, 0), 5), ((5, 2), 2)]
)
def test_what_is_looked_at_next_to_the_tests_fails_the_run(capfd, codes, expected):
    """By its exit code, and is named at the end; alone it is no run of tests."""
    nothing = run_tests.outcomes.Outcomes(frozenset(), (), complete=True)
    results = [
        run_tests.Result(tests, code, nothing)
        for tests, code in zip((SERVERS, run_tests.CHECKS), codes, strict=True)
    ]
    assert run_tests.conclude(results, frozenset()) == expected
    line = "== FAILED types, import contracts, generated files: exit code 2, see above"
    assert (line in capfd.readouterr().out.splitlines()) == (codes[1] == 2)


def test_the_longest_files_are_reported(capfd):
    """Ten of a group at most, and none that took seconds only."""
    seconds = {f"test_{at}.py": float(at) for at in range(20)}
    took = run_tests.outcomes.Outcomes(frozenset(), (), complete=True, seconds=seconds, cpu_s=60.4)
    run_tests.show_slowest(run_tests.Result(SERVERS, 0, took))
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == "== with servers: 190 s, 60 s of CPU; the longest files:"
    assert [line.split() for line in lines[1:]] == [
        [str(at), "s", f"test_{at}.py"] for at in range(19, 9, -1)
    ]
    quick = took._replace(seconds={"test_it.py": 4.0})
    run_tests.show_slowest(run_tests.Result(SERVERS, 0, quick))
    assert not capfd.readouterr().out

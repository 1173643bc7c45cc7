"""The matrix of Kubernetes releases: its runs, their records, and the page of the results."""

import json

import pytest

from hack.ci import versions
from hack.cluster._errors import ClusterError
from hack.cluster._versions import GANG_SETTINGS, KUBERNETES, SIDECARS, Release, minor_of
from hack.generate import update_versions

RUN = versions.Run("1.36.3", "1.35.4")


ALL = versions.SUBJECTS | {"reported": (versions.REPORTED,)}


@pytest.mark.parametrize("subject", ALL)
def test_the_tests_of_a_subject_exist(subject):
    """A renamed test is noticed here, not in a run of an hour."""
    for node in ALL[subject]:
        file, _, name = node.partition("::")
        text = (versions.ROOT / file).read_text()
        assert f"def {name}" in text


def test_older_kubelets_run_only_subjects_with_pods():
    """Gates that they may not know are not set."""
    assert RUN.subjects() == list(versions.WITH_NODES)
    same = versions.Run("1.35.4", "1.35.4")
    assert same.subjects() == [each for each in versions.SUBJECTS if each != versions.MOVED]
    assert versions.WITH_NODES[0] == "group scheduling"
    assert RUN.environment["JOBSETPY_FEATURE_GATES"] == ""
    assert SIDECARS in same.environment["JOBSETPY_FEATURE_GATES"]


@pytest.mark.parametrize(
    ("kubernetes", "kubelet", "test"),
    [
        ("1.36.3", "1.36.3", versions.SUBJECTS[versions.SIDECAR][0]),
        ("1.35.4", "1.35.4", versions.SUBJECTS[versions.SIDECAR][0]),
        ("1.36.3", "1.35.4", versions.REPORTED),
    ],
)
def test_missing_features_of_a_release_are_reported(kubernetes, kubelet, test):
    """A test of the manager's report is run instead, and the page says so."""
    run = versions.Run(kubernetes, kubelet)
    assert run.tests(versions.SIDECAR) == (test,)
    row = {"kubernetes": kubernetes, "kubelet": kubelet, "gates": "", "machine": "",
           "subjects": {versions.SIDECAR: {"passed": 1, "failed": [], "date": "2026-01-01"}}}  # fmt: skip
    assert (
        "not in this release; reported: 1" in update_versions.page([row])
    ) is run.is_unsupported(versions.SIDECAR)


def test_pairs_of_releases_can_be_selected(monkeypatch):
    """All pairs are run, or the named releases alone or with the named older kubelets."""
    monkeypatch.setattr(versions, "RELEASES", ("3", "2", "1"))

    def pairs(*given):
        return [(run.kubernetes, run.kubelet) for run in versions.pairs(*given)]

    assert pairs([], []) == [("3", "3"), ("2", "2"), ("1", "1"), ("3", "2"), ("3", "1")]
    assert pairs(["2", "1"], []) == [("2", "2"), ("1", "1")]
    assert pairs([], ["2", "1"]) == [("3", "2"), ("3", "1")]
    assert pairs(["2"], ["1"]) == [("2", "1")]


def test_control_planes_are_upgraded_by_one_minor_release_at_a_time(monkeypatch):
    """The steps are releases of the matrix; only runs with older kubelets have an upgrade."""
    monkeypatch.setattr(versions, "RELEASES", ("1.10.3", "1.9.4", "1.8.4"))
    assert versions.between("1.8.4", "1.10.3") == ["1.9.4", "1.10.3"]
    assert versions.between("1.9.4", "1.10.3") == ["1.10.3"]
    assert versions.MOVED in RUN.subjects()


def test_results_are_recorded_and_shown(tmp_path):
    """A new result of a subject replaces the old one; newest releases come first."""
    out = tmp_path / "versions.json"
    old, new = versions.Run("1.9.0", "1.9.0"), versions.Run("1.10.0", "1.10.0")
    versions.record(out, old, "admission", {"passed": 1, "failed": ["test_a"]})
    versions.record(out, new, "admission", {"passed": 2, "failed": []})
    versions.record(out, old, "admission", {"passed": 7, "failed": []})
    versions.record(out, old, "failure policy", {"passed": 3, "failed": ["test_b"]})
    rows = json.loads(out.read_text())
    assert [row["kubernetes"] for row in rows] == ["1.10.0", "1.9.0"]
    text = update_versions.page(rows)
    assert "| | Kubernetes 1.10.0 | Kubernetes 1.9.0 |" in text
    assert "| admission | 2 | 7 |" in text
    assert "| failure policy | - | **failed**: 1, passed: 3 |" in text
    assert "failed, failure policy: `test_b`" in text
    assert 'make test-versions ARGS="--kubernetes 1.9.0"' in text
    assert f"these were not run: Kubernetes {KUBERNETES};" in text


def test_settings_for_native_gangs_follow_from_the_release():
    """The default release has some; one that has none, or is not known, is an error."""
    assert Release().gang_settings() == GANG_SETTINGS[minor_of(KUBERNETES)]
    with pytest.raises(ClusterError, match=r"1\.35\.4: no settings for native gangs known"):
        Release(kubernetes="1.35.4").gang_settings()


@pytest.mark.parametrize(
    ("code", "cases", "expected"),
    [
        (0, "<testcase file='a.py' name='x'/>", {"passed": 1, "failed": []}),
        (
            1,
            "<testcase file='a.py' name='x'/><testcase file='a.py' name='x'><error/></testcase>",
            {"passed": 0, "failed": ["a.py::x"]},
        ),
        (0, "<testcase file='a.py' name='x'><skipped/></testcase>", {"passed": 0, "failed": []}),
        (2, "", {"passed": 0, "failed": ["not all tests ran"]}),
    ],
)
def test_result_is_read_from_the_report_of_pytest(code, cases, expected):
    """A test whose fixture fails afterwards has failed; a skipped one has neither passed nor failed."""
    assert versions.result(code, f"<testsuites>{cases}</testsuites>") == expected

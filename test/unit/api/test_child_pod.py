"""The manager's slice of a pod, as kubelets write it."""

from jobsetpy.api.jobset import ChildPod
from jobsetpy.testing.jobsets import decoded


def test_ends_without_a_moment():
    """A container that was removed to restart in place has ended at a time that nobody knows."""
    unknown = {"terminated": {"exitCode": 137, "startedAt": None, "finishedAt": None}}
    later = {"terminated": {"exitCode": 3, "finishedAt": "2026-01-01T00:00:00Z"}}
    containers = [
        {"name": "b", "restartCount": 1, "state": later, "lastState": {}},
        {"name": "a", "restartCount": 1, "state": unknown, "lastState": unknown},
    ]
    pod = decoded(
        ChildPod, {"metadata": {"name": "p"}, "status": {"containerStatuses": containers}}
    )

    assert [each.name for each in pod.status.failed] == ["a", "b"]

"""Fields of a pod that the manager reads, as kubelets write them."""

from jobsetpy.api.jobset import ChildPod
from support.jobsets import decoded


def test_containers_without_an_end_time_come_first():
    """The end time is unknown for a container that was removed to restart in place."""
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

"""Contract: discovery and version of a server."""

import pytest

from support.contract_kit import Api


async def test_version(api: Api) -> None:
    """The parts of the version are strings."""
    answer = await api.get("/version")

    assert answer.body["major"] == "1"
    assert answer.body["gitVersion"].startswith("v1.")


@pytest.mark.parametrize(
    ("path", "name", "kind", "namespaced"),
    [
        ("/api/v1", "pods", "Pod", True),
        ("/api/v1", "namespaces", "Namespace", False),
        ("/apis/batch/v1", "jobs", "Job", True),
        ("/apis/coordination.k8s.io/v1", "leases", "Lease", True),
        ("/apis/contract.example.com/v1", "widgets", "Widget", True),
    ],
)
async def test_resources(api: Api, path: str, name: str, kind: str, namespaced: bool) -> None:
    """The resources of a group version are listed with their verbs."""
    answer = await api.get(path)

    found = {one["name"]: one for one in answer.body["resources"]}
    assert answer.body["kind"] == "APIResourceList"
    assert (found[name]["kind"], found[name]["namespaced"]) == (kind, namespaced)
    verbs = {"create", "delete", "get", "list", "patch", "update", "watch"}
    assert verbs <= set(found[name]["verbs"])
    assert (f"{name}/status" in found) is (name != "leases")

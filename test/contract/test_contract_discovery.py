"""Contract: what a server says of itself."""

import pytest

from support.contract_kit import Api


@pytest.mark.parametrize("path", ["/readyz", "/livez", "/healthz"])
async def test_health(api: Api, path: str) -> None:
    """Health is plain text."""
    answer = await api.get(path)

    assert (answer.status, answer.body) == (200, "ok")


async def test_version(api: Api) -> None:
    """The version has its parts as text."""
    answer = await api.get("/version")

    assert answer.body["major"] == "1"
    assert answer.body["gitVersion"].startswith("v1.")


async def test_groups(api: Api) -> None:
    """The groups and their preferred versions."""
    core, groups = await api.get("/api"), await api.get("/apis")

    assert core.body["versions"] == ["v1"]
    assert groups.body["kind"] == "APIGroupList"
    found = {g["name"]: g["preferredVersion"]["groupVersion"] for g in groups.body["groups"]}
    assert found["batch"] == "batch/v1"
    assert found["contract.example.com"] == "contract.example.com/v1"


@pytest.mark.parametrize(
    ("path", "name", "kind", "namespaced", "short"),
    [
        ("/api/v1", "pods", "Pod", True, ["po"]),
        ("/api/v1", "namespaces", "Namespace", False, ["ns"]),
        ("/apis/batch/v1", "jobs", "Job", True, None),
        ("/apis/coordination.k8s.io/v1", "leases", "Lease", True, None),
        ("/apis/contract.example.com/v1", "widgets", "Widget", True, None),
    ],
)
async def test_resources(
    api: Api, path: str, name: str, kind: str, namespaced: bool, short: list | None
) -> None:
    """What a group version serves, with the verbs of each resource."""
    answer = await api.get(path)

    found = {one["name"]: one for one in answer.body["resources"]}
    assert answer.body["kind"] == "APIResourceList"
    assert (found[name]["kind"], found[name]["namespaced"]) == (kind, namespaced)
    assert {"create", "delete", "get", "list", "patch", "update", "watch"} <= set(
        found[name]["verbs"]
    )
    assert found[name].get("shortNames") == short
    assert (f"{name}/status" in found) is (name != "leases")

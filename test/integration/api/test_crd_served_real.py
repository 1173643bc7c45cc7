"""The CRD in a real API server: discovery, tables and published schema."""

import pytest
import yaml

from hack.generate import update_crds
from jobsetpy.reconcilers.execution.definition import Definition
from support.cluster.install import connected

pytestmark = pytest.mark.cluster

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/jobsets.jobset.x-k8s.io"
GROUP = "/apis/jobset.x-k8s.io/v1alpha2"


def test_table_has_the_columns_of_the_api(jobsets):
    """They are filled from spec and status."""
    made = jobsets.make({"suspend": True}, dry_run=False).accepted()
    condition = {
        "type": "Completed",
        "status": "True",
        "reason": "AllJobsCompleted",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {"restarts": 3, "terminalState": "Completed", "conditions": [condition]}
    jobsets.replace({**made, "status": status}, "/status").accepted()

    table = jobsets.api(
        "GET",
        f"{jobsets.path}/{made['metadata']['name']}",
        accept="application/json;as=Table;g=meta.k8s.io;v=v1",
    ).accepted()

    assert [(c["name"], c["type"], c["priority"]) for c in table["columnDefinitions"]] == [
        ("Name", "string", 0),
        ("TerminalState", "string", 0),
        ("Restarts", "string", 0),
        ("StartTime", "date", 0),
        ("Completed", "string", 0),
        ("Suspended", "string", 0),
        ("Age", "date", 0),
        ("InPlace", "integer", 0),
        ("State", "string", 0),
        ("Ready", "string", 0),
        ("Epoch", "integer", 1),
    ]
    cells = table["rows"][0]["cells"]
    assert [*cells[1:3], *cells[4:6]] == ["Completed", "3", "True", "true"]


def test_resource_is_discovered(api):
    """The resource has a status subresource, no scale, no short names and no categories."""
    resources = api("GET", GROUP).accepted()["resources"]

    assert {item["name"] for item in resources} == {"jobsets", "jobsets/status"}
    main = next(item for item in resources if item["name"] == "jobsets")
    assert (main["kind"], main["singularName"], main["namespaced"]) == ("JobSet", "jobset", True)
    assert "shortNames" not in main
    assert "categories" not in main


def test_crd_is_established(api):
    """The names are accepted, and the schema is structural."""
    conditions = api("GET", CRD).accepted()["status"]["conditions"]
    found = {item["type"]: item["status"] for item in conditions}

    assert found == {"NamesAccepted": "True", "Established": "True"}


def test_crd_causes_no_warning_when_it_is_created_strictly(api):
    """It has no unknown keyword."""
    text = update_crds.CRD.read_text()
    answer = api.apply(CRD, yaml.safe_load(text), dryRun="All")

    answer.accepted()
    assert answer.warnings == []


def test_descriptions_of_fields_are_published(api):
    """Clients such as ``kubectl explain`` show them."""
    document = api("GET", "/openapi/v3/apis/jobset.x-k8s.io/v1alpha2").accepted()
    schemas = document["components"]["schemas"]
    (spec,) = (item for name, item in schemas.items() if name.endswith(".JobSet"))

    assert spec["properties"]["spec"]["properties"]["suspend"]["description"]


async def test_published_crd_has_all_fields_of_the_release(api):
    """A manager finds them in the published schema, without a permission for CRDs."""
    async with connected(api.kubeconfig, qps=0) as client:
        definition = Definition(client)
        definition.missing = frozenset({"not looked at"})
        await definition.check()
    assert definition.missing == frozenset()


def test_snapshot_is_the_published_one(api):
    """The packaged schemas of built-in types are those of the cluster's Kubernetes version."""
    found = update_crds.fetch_definitions(api.kubeconfig)

    assert update_crds.snapshot_text(found) == update_crds.SNAPSHOT.read_text()

"""The definition in a real API server: how it is served, listed and published."""

import pytest
import yaml

from hack.generate import update_crds

pytestmark = pytest.mark.cluster

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/jobsets.jobset.x-k8s.io"
GROUP = "/apis/jobset.x-k8s.io/v1alpha2"


def test_printer_columns(jobsets):
    """A table has the columns of the API, filled from spec and status."""
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
        ("Completed", "string", 0),
        ("Suspended", "string", 0),
        ("Age", "date", 0),
        ("InPlace", "integer", 0),
        ("State", "string", 0),
        ("Ready", "string", 0),
        ("Epoch", "integer", 1),
    ]
    cells = table["rows"][0]["cells"]
    assert cells[1:5] == ["Completed", "3", "True", "true"]


def test_discovery(api):
    """The resource has a status subresource, no scale, no short names and no categories."""
    resources = api("GET", GROUP).accepted()["resources"]

    assert {item["name"] for item in resources} == {"jobsets", "jobsets/status"}
    main = next(item for item in resources if item["name"] == "jobsets")
    assert (main["kind"], main["singularName"], main["namespaced"]) == ("JobSet", "jobset", True)
    assert "shortNames" not in main
    assert "categories" not in main


def test_the_definition_is_established(api):
    """The definition has been accepted, and its schema is structural."""
    conditions = {
        item["type"]: item["status"] for item in api("GET", CRD).accepted()["status"]["conditions"]
    }

    assert conditions == {"NamesAccepted": "True", "Established": "True"}


def test_strict_creation_has_nothing_to_complain_about(api):
    """No keyword of the definition is unknown, and nothing gives a warning."""
    text = update_crds.CRD.read_text()
    answer = api.apply(CRD, yaml.safe_load(text), dryRun="All")

    answer.accepted()
    assert answer.warnings == []


def test_the_api_server_publishes_the_descriptions(api):
    """Clients such as kubectl explain see the texts of the fields."""
    document = api("GET", "/openapi/v3/apis/jobset.x-k8s.io/v1alpha2").accepted()
    schemas = document["components"]["schemas"]
    (spec,) = (item for name, item in schemas.items() if name.endswith(".JobSet"))

    assert spec["properties"]["spec"]["properties"]["suspend"]["description"]


def test_the_snapshot_is_what_the_api_server_publishes(api):
    """The packaged schemas of built-in types are those of the cluster's Kubernetes version."""
    found = update_crds.fetch_definitions(api.server, api.tls, api.token)

    assert update_crds.snapshot_text(found) == update_crds.SNAPSHOT.read_text()

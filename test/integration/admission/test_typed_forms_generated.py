"""Job templates generated from the API server's schema, as the types of a Go client print them."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobsetpy.api import shapes
from jobsetpy.api.schema_embedded import Schema, snapshot
from jobsetpy.reconcilers.rules.json_equality import same
from support.admission.typed_client import typed_client

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

DEFINITIONS = snapshot()
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
TEMPLATE = "io.k8s.api.batch.v1.JobTemplateSpec"
TEXTS = st.sampled_from(["", "a", "0", "false", "1000m"])
LABELS = st.dictionaries(st.sampled_from(["a", "b"]), TEXTS, max_size=2)
OWN: dict[str, st.SearchStrategy[Any]] = {
    QUANTITY: st.sampled_from(
        [
            *(
                "0",
                "1",
                "0.5",
                "500m",
                "1000m",
                "1024Mi",
                "1Gi",
                "1.5Gi",
                "1e3",
                "1k",
                "100n",
                "0.0",
            ),
            *(0, 8),
        ]
    ),
    INT_OR_STRING: st.sampled_from([0, 80, "http", "0"]),
    METADATA: st.fixed_dictionaries(
        {}, optional={"labels": LABELS, "annotations": LABELS, "name": TEXTS}
    ),
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": st.just("2026-01-02T03:04:05Z"),
}
SHAPE = shapes.jobset_spec().fields["replicatedJobs"][0].item
_made: dict[str, st.SearchStrategy[Any]] = {}


def definition(name: str) -> st.SearchStrategy[Any]:
    """Values of a definition, each with a few of its fields."""
    if name in OWN:
        return OWN[name]
    if name not in _made:
        _made[name] = st.deferred(lambda: of_schema(DEFINITIONS[name]))
    return _made[name]


def of_schema(schema: Schema) -> st.SearchStrategy[Any]:
    """Values that the API server accepts, often zero or empty."""
    reference = schema.get("$ref") or next(
        (part["$ref"] for part in schema.get("allOf", ()) if "$ref" in part), None
    )
    if reference is not None:
        return definition(reference.rpartition("/")[2])
    match schema.get("type"):
        case "string":
            return st.just("MTIz") if schema.get("format") == "byte" else TEXTS
        case "integer":
            return st.sampled_from([0, 1, 7])
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(of_schema(schema["items"]), max_size=2)
    if "additionalProperties" in schema:
        return st.dictionaries(
            st.sampled_from(["a", "b"]), of_schema(schema["additionalProperties"]), max_size=2
        )
    fields = schema.get("properties", {})
    required = schema.get("required", [])

    @st.composite
    def chosen(draw: st.DrawFn) -> dict[str, Any]:
        names = draw(st.sets(st.sampled_from(sorted(fields)), max_size=3)) if fields else set()
        return {name: draw(of_schema(fields[name])) for name in sorted({*names, *required})}

    return chosen()


def printed(templates: list[Any]) -> list[Any]:
    """Return the templates as the types of a Go client print them."""
    lines = [
        json.dumps({"spec": {"replicatedJobs": [{"name": "w", "template": each}]}})
        for each in templates
    ]
    done = subprocess.run(
        [typed_client(), "print"],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
    )
    out = [json.loads(line) for line in done.stdout.splitlines()]
    assert not [each["error"] for each in out if "error" in each]
    return [each["spec"]["replicatedJobs"][0]["template"] for each in out]


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(st.lists(definition(TEMPLATE), min_size=20, max_size=20))
def test_template_is_unchanged_when_a_typed_client_prints_it(templates: list[Any]) -> None:
    """Any template and the typed client's form of it are equal for the rules against changes."""
    assert SHAPE is not None
    shape = SHAPE.fields["template"][0]
    for written, back in zip(templates, printed(templates), strict=True):
        assert same(written, back, shape), (written, back)

"""api/schema*.py: the CRD that is generated from the API classes."""

import json

import pytest

from jobsetpy.api import schema, schema_embedded
from jobsetpy.api._wire import field, wire
from jobsetpy.api.jobset import JobSet

CRD = schema.jobset_crd()
VERSION = CRD["spec"]["versions"][0]
ROOT = VERSION["schema"]["openAPIV3Schema"]


def at(path, root=ROOT):
    """Schema at a path such as ``spec.replicatedJobs[].name``."""
    for part in path.split("."):
        name = part.removesuffix("[]")
        root = root["properties"][name]
        if part.endswith("[]"):
            root = root["items"]
    return root


def walk(node, path=""):
    """All schemas of a tree with their paths."""
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from walk(node[key], f"{path}[]")


def rules(path):
    return [rule["rule"] for rule in at(path).get("x-kubernetes-validations", ())]


INT32 = {"type": "integer", "format": "int32"}
STRINGS = {"type": "array", "items": {"type": "string"}}
ATOMIC = {**STRINGS, "x-kubernetes-list-type": "atomic"}
RESTARTS = {**ATOMIC, "items": INT32, "maxItems": 1024}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("spec.network.enableDNSHostnames", {"type": "boolean"}),
        ("spec.network.subdomain", {"type": "string"}),
        ("spec.network.publishNotReadyAddresses", {"type": "boolean"}),
        ("spec.successPolicy.operator", {"type": "string", "enum": ["All", "Any"]}),
        ("spec.successPolicy.targetReplicatedJobs", ATOMIC),
        ("spec.failurePolicy.maxRestarts", INT32),
        (
            "spec.failurePolicy.restartStrategy",
            {
                "type": "string",
                "default": "Recreate",
                "enum": ["Recreate", "BlockingRecreate", "InPlaceRestart"],
            },
        ),
        ("spec.failurePolicy.rules[].name", {"type": "string"}),
        ("spec.failurePolicy.rules[].onJobFailureReasons", {**STRINGS, "maxItems": 128}),
        ("spec.failurePolicy.rules[].onJobFailureMessagePatterns", {**STRINGS, "maxItems": 128}),
        ("spec.failurePolicy.rules[].targetReplicatedJobs", ATOMIC),
        (
            "spec.startupPolicy.startupPolicyOrder",
            {"type": "string", "enum": ["AnyOrder", "InOrder"]},
        ),
        ("spec.suspend", {"type": "boolean"}),
        ("spec.coordinator.replicatedJob", {"type": "string"}),
        ("spec.coordinator.jobIndex", {"type": "integer"}),
        ("spec.coordinator.podIndex", {"type": "integer"}),
        ("spec.managedBy", {"type": "string"}),
        ("spec.ttlSecondsAfterFinished", {**INT32, "minimum": 0}),
        (
            "spec.volumeClaimPolicies[].retentionPolicy.whenDeleted",
            {"type": "string", "default": "Delete", "enum": ["Delete", "Retain"]},
        ),
        ("spec.replicatedJobs[].name", {"type": "string"}),
        ("spec.replicatedJobs[].groupName", {"type": "string", "default": "default"}),
        ("spec.replicatedJobs[].replicas", {**INT32, "default": 1, "minimum": 0}),
        ("spec.replicatedJobs[].dependsOn[].name", {"type": "string"}),
        (
            "spec.replicatedJobs[].dependsOn[].status",
            {"type": "string", "enum": ["Ready", "Complete"]},
        ),
        ("spec.groupSchedulingConfig.timeoutAfterSeconds", {**INT32, "minimum": 1}),
        ("spec.groupSchedulingConfig.targetReplicatedJobs", ATOMIC),
        ("status.restarts", INT32),
        ("status.restartsCountTowardsMax", INT32),
        ("status.terminalState", {"type": "string"}),
        ("status.syncedEpoch", {**INT32, "default": 0}),
        ("status.deprecatedEpoch", {**INT32, "default": 0}),
        ("status.previousInPlaceRestartAttempt", {**INT32, "minimum": 0}),
        ("status.currentInPlaceRestartAttempt", {**INT32, "minimum": 0}),
        ("status.replicatedJobsStatus[].ready", INT32),
        ("status.replicatedJobsStatus[].jobRestarts", RESTARTS),
        ("status.replicatedJobsStatus[].jobRestartsCountTowardsMax", RESTARTS),
    ],
)
def test_leaf_fields(path, expected):
    """Each scalar and list of scalars has its type, limits and default, and a description."""
    found = dict(at(path))

    assert found.pop("description")
    assert found == expected


def test_failure_policy_actions():
    """Exactly the actions of the failure policy are allowed."""
    restarts = {
        f"Restart{scope}{suffix}"
        for scope in ("JobSet", "ReplicatedJob", "Job")
        for suffix in ("", "AndIgnoreMaxRestarts")
    }
    assert set(at("spec.failurePolicy.rules[].action")["enum"]) == {
        "FailJobSet",
        "FailJob",
        *restarts,
    }


POD = "spec.replicatedJobs[].template.spec.template.spec"


def merged_by(key, limit=None):
    """Return keywords of a list of objects that are merged by a key."""
    keys = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
    return {**keys, "maxItems": limit}


CONDITION_FIELDS = ["lastTransitionTime", "message", "reason", "status", "type"]
ATOMIC_50 = {"x-kubernetes-list-type": "atomic", "maxItems": 50}
CONTAINER = f"{POD}.containers[]"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        # Required fields are those of the API, in a fixed order.
        ("spec.replicatedJobs[]", {"required": ["name", "template"]}),
        ("spec.replicatedJobs[].dependsOn[]", {"required": ["name", "status"]}),
        ("spec.replicatedJobs[].template.spec", {"required": ["template"]}),
        (POD, {"required": ["containers"]}),
        ("spec.successPolicy", {"required": ["operator"]}),
        ("spec.failurePolicy.rules[]", {"required": ["action"]}),
        ("spec.startupPolicy", {"required": ["startupPolicyOrder"]}),
        ("spec.coordinator", {"required": ["replicatedJob"]}),
        (
            "status.replicatedJobsStatus[]",
            {"required": ["active", "failed", "name", "ready", "succeeded", "suspended"]},
        ),
        ("status.conditions[]", {"required": CONDITION_FIELDS}),
        # All fields of these objects are optional.
        ("spec", {"required": None}),
        ("status", {"required": None}),
        ("spec.network", {"required": None}),
        ("spec.failurePolicy", {"required": None}),
        ("spec.volumeClaimPolicies[]", {"required": None}),
        ("spec.volumeClaimPolicies[].templates[]", {"required": None}),
        ("spec.groupSchedulingConfig", {"required": None}),
        # Lists of objects with a name are merged by it; claims are replaced as a whole.
        ("spec.replicatedJobs", merged_by("name")),
        ("spec.replicatedJobs[].dependsOn", merged_by("name", 5)),
        ("status.conditions", merged_by("type")),
        ("status.replicatedJobsStatus", merged_by("name")),
        ("spec.volumeClaimPolicies", ATOMIC_50),
        ("spec.volumeClaimPolicies[].templates", ATOMIC_50),
        # Documented defaults of optional fields of built-in types are kept.
        (f"{CONTAINER}.ports[].protocol", {"default": "TCP"}),
        (f"{POD}.initContainers[].ports[].protocol", {"default": "TCP"}),
        (f"{CONTAINER}.env[].valueFrom.configMapKeyRef.name", {"default": ""}),
        (f"{CONTAINER}.livenessProbe.grpc.service", {"default": ""}),
        (f"{POD}.imagePullSecrets[].name", {"default": ""}),
        (f"{POD}.volumes[].azureDisk.fsType", {"default": "ext4"}),
        (f"{POD}.volumes[].azureDisk.readOnly", {"default": False}),
        (f"{POD}.volumes[].iscsi.iscsiInterface", {"default": "default"}),
        # References by name are one value for server-side apply, as in the CRD of the Go types.
        (f"{CONTAINER}.envFrom[].configMapRef", {"x-kubernetes-map-type": "atomic"}),
        (f"{CONTAINER}.envFrom[].secretRef", {"x-kubernetes-map-type": "atomic"}),
    ],
)
def test_keywords(path, expected):
    """A schema has these keywords with these values, and lacks those with None."""
    found = at(path)

    assert {key: found.get(key) for key in expected} == expected


def test_the_root_has_no_required_fields():
    """Metadata, spec and status are optional."""
    assert "required" not in ROOT


def test_failure_rules_are_a_plain_list():
    """Rules have an order and no key, so there is no list type."""
    rules = at("spec.failurePolicy.rules")
    assert set(rules) == {"type", "items", "description", "maxItems"}
    assert rules["maxItems"] == 128


def test_immutable_fields():
    """Exactly these fields may not change once they are set."""
    found = {
        path.removeprefix(".")
        for path, node in walk(ROOT)
        if schema.IMMUTABLE in node.get("x-kubernetes-validations", ())
    }

    assert found == {
        "spec.network",
        "spec.successPolicy",
        "spec.failurePolicy",
        "spec.startupPolicy",
        "spec.volumeClaimPolicies",
        "spec.groupSchedulingConfig",
        "spec.replicatedJobs[].dependsOn",
    }
    assert schema.IMMUTABLE == {"rule": "self == oldSelf", "message": "Value is immutable"}


def test_other_rules():
    """The spec and a volume claim policy have one rule each."""
    assert len(rules("spec")) == 1
    assert len(rules("spec.volumeClaimPolicies[]")) == 1


def test_identity():
    """Group, names, scope and version are those of the API, without aliases, scale and conversion."""
    spec = CRD["spec"]

    assert CRD["metadata"]["name"] == "jobsets.jobset.x-k8s.io"
    assert spec["group"] == "jobset.x-k8s.io"
    assert spec["names"] == {
        "kind": "JobSet",
        "listKind": "JobSetList",
        "plural": "jobsets",
        "singular": "jobset",
    }
    assert spec["scope"] == "Namespaced"
    assert "conversion" not in spec
    assert [version["name"] for version in spec["versions"]] == ["v1alpha2"]
    assert VERSION["served"] is True is VERSION["storage"]
    assert VERSION["subresources"] == {"status": {}}


def test_printer_columns():
    """Columns have their names, types and paths, in this order."""
    assert [(c["name"], c["type"], c["jsonPath"]) for c in VERSION["additionalPrinterColumns"]] == [
        ("TerminalState", "string", ".status.terminalState"),
        ("Restarts", "string", ".status.restarts"),
        ("Completed", "string", '.status.conditions[?(@.type=="Completed")].status'),
        ("Suspended", "string", ".spec.suspend"),
        ("Age", "date", ".metadata.creationTimestamp"),
        ("InPlace", "integer", ".status.inPlaceRestart.restarts"),
        ("State", "string", ".status.state"),
        ("Ready", "string", ".status.readyPods"),
        ("Epoch", "integer", ".status.syncedEpoch"),
    ]


def test_conditions_follow_the_standard():
    """Conditions have the limits of metav1.Condition."""
    condition = at("status.conditions[]")["properties"]

    assert (condition["reason"]["minLength"], condition["reason"]["maxLength"]) == (1, 1024)
    assert (condition["type"]["maxLength"], condition["message"]["maxLength"]) == (316, 32768)
    assert condition["status"]["enum"] == ["True", "False", "Unknown"]
    assert condition["observedGeneration"]["minimum"] == 0


def test_own_fields_are_described():
    """Every field outside of embedded types has a description."""
    bare = [
        path
        for path, node in walk(ROOT)
        if "[]" not in path[-2:] and ".template" not in path and path not in {"", ".metadata"}
        if "description" not in node
    ]

    assert bare == []


def test_defaults_that_other_crds_do_not_have_are_dropped():
    """Two fields of an Azure disk have a default in the snapshot, but not in other CRDs."""
    fields = at(f"{POD}.volumes[].azureDisk")["properties"]
    assert "default" not in fields["kind"]
    assert "default" not in fields["cachingMode"]


def test_required_fields_have_no_default():
    """A field is required or has a default, not both."""
    both = [
        f"{path}.{name}"
        for path, node in walk(ROOT)
        for name in node.get("required", ())
        if "default" in node["properties"][name]
    ]

    assert both == []


def test_defaults_are_scalars():
    """No default creates an absent object or list."""
    assert [path for path, node in walk(ROOT) if isinstance(node.get("default"), dict | list)] == []


def test_map_keys_are_required_or_have_a_default():
    """The API server demands this of the keys of a list map."""
    bad = [
        (path, key)
        for path, node in walk(ROOT)
        for key in node.get("x-kubernetes-list-map-keys", ())
        if key not in node["items"].get("required", ())
        and "default" not in node["items"]["properties"][key]
    ]

    assert bad == []


METADATA = {"annotations", "finalizers", "labels", "name", "namespace"}


@pytest.mark.parametrize(
    "path",
    [
        "spec.replicatedJobs[].template.metadata",
        "spec.replicatedJobs[].template.spec.template.metadata",
        "spec.volumeClaimPolicies[].templates[].metadata",
        f"{POD}.volumes[].ephemeral.volumeClaimTemplate.metadata",
    ],
)
def test_embedded_metadata(path):
    """Templates may set these five fields of metadata."""
    assert set(at(path)["properties"]) == METADATA


def test_quantities_and_ports_take_numbers_and_texts():
    """Quantities and target ports are integers or texts; quantities have a pattern."""
    limits = at(f"{POD}.containers[].resources.limits")["additionalProperties"]
    port = at(f"{POD}.containers[].livenessProbe.httpGet.port")

    assert limits["x-kubernetes-int-or-string"] is True is port["x-kubernetes-int-or-string"]
    assert "pattern" in limits
    assert "pattern" not in port


def test_embedded_values_are_not_enumerated():
    """A value of a newer Job API is not refused."""
    assert "enum" not in at(f"{POD}.restartPolicy")
    assert (
        "enum"
        in schema_embedded.snapshot()["io.k8s.api.core.v1.PodSpec"]["properties"]["restartPolicy"]
    )


FORBIDDEN = {"$ref", "allOf", "oneOf", "nullable", "title", "x-kubernetes-patch-strategy"}


def test_keywords_that_crds_forbid_are_removed():
    """The schema has no keyword that structural schemas forbid, and a type everywhere."""
    assert [path for path, node in walk(ROOT) if FORBIDDEN & node.keys()] == []
    assert [
        path
        for path, node in walk(ROOT)
        if "type" not in node and "x-kubernetes-int-or-string" not in node
    ] == []


def test_the_crd_is_small_enough_to_apply():
    """Client-side apply stores a copy in an annotation, which may have 256 KiB."""
    assert len(json.dumps(CRD)) < 200_000


def test_each_call_returns_a_new_object():
    """A caller may change the result."""
    schema.jobset_crd()["spec"]["names"]["kind"] = "Changed"

    assert schema.jobset_crd() == CRD


# --- the builder on small classes --------------------------------------------------------------


@wire
class Leaf:
    size: int = field(default=0, required=True, description="Size.")


@wire
class Tree:
    RULES = (("self.leaf.size > 0", "too small"),)
    leaf: Leaf | None = field(default=None, immutable=True)
    leaves: tuple[Leaf, ...] = field(default=(), map_keys=("size",), max_items=3)
    when_done: str = field(default="now", defaulted=True)
    free: bytes = field(default=0.0)


def test_object_schema_refuses_unknown_types():
    """A field of a type without a schema is an error at generation, not a gap in the result."""
    with pytest.raises(TypeError, match="bytes"):
        schema.object_schema(Tree, {})


def test_object_schema_of_nested_classes():
    """Nested classes, rules, keys and defaults become one schema."""

    @wire
    class Small:
        RULES = Tree.RULES
        leaf: Leaf | None = field(default=None, immutable=True)
        leaves: tuple[Leaf, ...] = field(default=(), map_keys=("size",), max_items=3)
        when_done: str = field(default="now", defaulted=True)

    leaf = {
        "type": "object",
        "properties": {"size": {**INT32, "description": "Size."}},
        "required": ["size"],
    }

    assert {
        "type": "object",
        "properties": {
            "leaf": {**leaf, "x-kubernetes-validations": [schema.IMMUTABLE]},
            "leaves": {
                "type": "array",
                "items": leaf,
                "maxItems": 3,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["size"],
            },
            "whenDone": {"type": "string", "default": "now"},
        },
        "x-kubernetes-validations": [{"rule": "self.leaf.size > 0", "message": "too small"}],
    } == schema.object_schema(Small, {})


def test_properties_have_the_wire_names_of_the_class():
    """The properties of the spec are the fields that the class decodes."""
    assert set(at("spec")["properties"]) >= {"replicatedJobs", "ttlSecondsAfterFinished"}
    assert JobSet.RESOURCE.plural in CRD["metadata"]["name"]

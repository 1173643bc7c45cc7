"""Custom resources: a class, its CRD, and its objects."""

import enum
import sys
from decimal import Decimal
from typing import Any, ClassVar, Literal

import pytest
import yaml

from jobsetpy import runtime as rt
from jobsetpy.api.schema import crd_of
from jobsetpy.testing import RecordingClient
from support.commands import run


class Size(enum.Enum):
    """An enum."""

    SMALL = "small"
    LARGE = "large"


@rt.model
class Port:
    """A nested class."""

    number: int = rt.field(default=0, required=True, minimum=1, maximum=65535)
    target: int | str = "http"


@rt.model
class WidgetSpec:
    """Fields of every type."""

    RULES: ClassVar = (("self.replicas >= self.spare", "more spares than replicas"),)
    schedule: str = rt.field(default="", required=True, min_length=1, pattern="^[^ ].*$")
    replicas: int = rt.field(default=1, defaulted=True, minimum=0, description="How many.")
    spare: int = 0
    size: Size = rt.field(default=Size.SMALL, defaulted=True)
    policy: Literal["Keep", "Drop"] = "Keep"
    ratio: float | None = None
    ports: tuple[Port, ...] = rt.field(default=(), map_keys=("number",))
    selector: dict[str, str] = rt.field(factory=dict)
    free_form: Any = None


@rt.model
class WidgetStatus:
    """A status."""

    conditions: tuple[rt.Condition, ...] = rt.field(default=(), map_keys=("type",))
    last_seen: str = ""


@rt.resource("example.com", "v1", "Widget", "widgets")
@rt.model
class Widget:
    """A widget."""

    RESOURCE: ClassVar[rt.ResourceInfo]
    COLUMNS: ClassVar = ({"name": "Size", "type": "string", "jsonPath": ".spec.size"},)
    metadata: rt.ObjectMeta = rt.ObjectMeta()
    spec: WidgetSpec = WidgetSpec()
    status: WidgetStatus = WidgetStatus()


def test_the_crd_is_derived_from_the_class():
    """Types, limits, defaults, enums, rules, columns and the subresource come from the class."""
    crd = crd_of(Widget)
    (version,) = crd["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]
    spec = schema["spec"]
    fields = spec["properties"]

    assert crd["metadata"]["name"] == "widgets.example.com"
    assert version["subresources"] == {"status": {}}
    assert version["additionalPrinterColumns"] == [Widget.COLUMNS[0]]
    assert spec["required"] == ["schedule"]
    assert spec["x-kubernetes-validations"][0]["rule"] == "self.replicas >= self.spare"
    assert fields["schedule"] == {"type": "string", "minLength": 1, "pattern": "^[^ ].*$"}
    assert (fields["replicas"]["default"], fields["replicas"]["minimum"]) == (1, 0)
    assert fields["size"] == {"type": "string", "enum": ["small", "large"], "default": "small"}
    assert fields["policy"]["enum"] == ["Keep", "Drop"]
    assert fields["ratio"] == {"type": "number"}
    assert fields["selector"]["additionalProperties"] == {"type": "string"}
    assert fields["freeForm"] == {"x-kubernetes-preserve-unknown-fields": True}
    assert fields["ports"]["x-kubernetes-list-map-keys"] == ["number"]
    port = fields["ports"]["items"]["properties"]
    assert port["number"]["maximum"] == 65535
    assert port["target"]["x-kubernetes-int-or-string"] is True
    assert "lastSeen" in schema["status"]["properties"]


async def test_objects_are_read_and_written_with_the_class():
    """Wire names are camelCase, enums are enums, and unknown fields survive a patch."""
    client = RecordingClient(qps=0)
    definition = crd_of(Widget)
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["later"] = {"type": "integer"}
    client.world.create("customresourcedefinitions", definition)
    body = {
        "metadata": {"name": "a"},
        "spec": {"schedule": "x", "size": "large", "freeForm": {"a": [1]}, "later": 1},
    }
    made = await client.create(Widget, "default", body)
    spec = made.spec
    assert (spec.size, spec.policy, spec.free_form) == (Size.LARGE, "Keep", {"a": [1]})
    status = rt.evolve(made.status, last_seen="now")
    await rt.patch_status(client, made, status)

    stored = client.world.get("widgets", "a")
    assert stored["status"] == {"lastSeen": "now"}
    assert stored["spec"]["later"] == 1


@pytest.mark.parametrize("cls", [Port, dict, int])
def test_a_class_without_a_kind_has_no_crd(cls):
    """The error names both decorators."""
    with pytest.raises(TypeError, match=r"runtime\.resource and runtime\.model"):
        crd_of(cls)


def test_a_union_without_a_schema_is_refused():
    """An annotation that no schema can express is an error."""

    @rt.resource("example.com", "v1", "Odd", "odds")
    @rt.model
    class Odd:
        RESOURCE: ClassVar[rt.ResourceInfo]
        either: int | bool | str = 0

    with pytest.raises(TypeError, match="one type and None"):
        crd_of(Odd)


def test_the_command_prints_crds():
    """``jobsetpy crds MODULE:Class`` prints YAML; a mistake is an error with exit code 2."""

    def crds(*targets):
        return run(sys.executable, "-m", "jobsetpy.app.main", "crds", *targets)

    done = crds("jobsetpy.runtime:Job")
    assert next(iter(yaml.safe_load_all(done.stdout)))["spec"]["names"]["kind"] == "Job"
    wrong = crds("jobsetpy.runtime:Nothing")
    assert (wrong.returncode, "Nothing" in wrong.stderr) == (2, True)


def test_a_module_that_fails_is_shown_with_the_line(tmp_path):
    """``crds`` ends with the reason, after the traceback of the module, as ``run`` does."""
    (tmp_path / "broken.py").write_text("1 / 0\n")

    done = run(sys.executable, "-m", "jobsetpy.app.main", "crds", "broken:Box", cwd=tmp_path)

    *lines, last = done.stderr.splitlines()
    assert last == "jobsetpy crds: importing 'broken' failed: ZeroDivisionError: division by zero"
    assert any('broken.py", line 1' in line for line in lines), done.stderr


@pytest.mark.parametrize(
    ("text", "worth"),
    [("1.5Gi", "1610612736"), ("100m", "0.1"), (2, "2"), ("1e3", "1000"), ("2E", "2e18"),
     (".5k", "500"), ("-3", "-3"), ("5n", "5e-9"), ("1Ei", "1152921504606846976")],
)  # fmt: skip
def test_quantities(text, worth):
    """The value of a quantity is exact."""
    assert rt.quantity(text) == Decimal(worth)


@pytest.mark.parametrize("text", ["", "1 Gi", "Gi", "1.5gi", "one", "1e", "0x1"])
def test_invalid_quantities_are_refused(text):
    """The error has examples."""
    with pytest.raises(ValueError, match="such as 500m"):
        rt.quantity(text)


def test_a_quantity_field_has_numbers_and_texts():
    """A field of another type cannot be a quantity."""

    @rt.resource("example.com", "v1", "Odd", "odds")
    @rt.model
    class Odd:
        RESOURCE: ClassVar[rt.ResourceInfo]
        metadata: rt.ObjectMeta = rt.ObjectMeta()
        memory: str = rt.field(default="", quantity=True)

    with pytest.raises(TypeError, match=r"int \| str"):
        crd_of(Odd)

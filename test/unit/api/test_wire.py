"""api/_wire.py: classes that use msgspec and attrs, and the assumptions about both."""

import attrs
import msgspec
import pytest

from jobsetpy.api import batch, core, jobset, meta
from jobsetpy.api._wire import camel_case, field, to_json, wire


@wire
class Inner:
    size: int = 0


@wire
class Sample:
    plain: str = ""
    two_words: int = 7
    with_acronym: bool | None = field(default=None, name="withDNSName")
    label: str = field(default="", name="example.com/a.b-c")
    type_: str = ""
    many: tuple[Inner, ...] = ()
    free: dict[str, int] = field(factory=dict)
    inner: Inner = Inner()
    described: int = field(default=0, description="How many.", minimum=0)

    def __attrs_post_init__(self) -> None:
        if self.plain:
            object.__setattr__(self, "plain", self.plain.lower())


def decode(text, cls=Sample):
    return msgspec.json.decode(text, type=cls)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("name", "name"),
        ("owner_references", "ownerReferences"),
        ("last_transition_time", "lastTransitionTime"),
        ("type_", "type"),
        ("pod_ip", "podIp"),
        ("a__b", "aB"),
        ("v1_only", "v1Only"),
    ],
)
def test_camel_case(name, expected):
    """Attribute names become camelCase, without a trailing underscore."""
    assert camel_case(name) == expected


def test_decodes_every_kind_of_field():
    """Camel case, custom names, nested objects, lists and maps are decoded from JSON."""
    got = decode(
        """{"plain": "x", "twoWords": 1, "withDNSName": true, "example.com/a.b-c": "l",
        "type": "t", "many": [{"size": 1}, {}], "free": {"k": 2}, "inner": {"size": 3}}"""
    )

    expected = Sample(
        plain="x",
        two_words=1,
        with_acronym=True,
        label="l",
        type_="t",
        many=(Inner(size=1), Inner()),
        free={"k": 2},
        inner=Inner(size=3),
    )
    assert got == expected
    assert type(got) is Sample


def test_absent_fields_have_their_defaults():
    """An empty object equals one that was created without arguments."""
    assert decode("{}") == Sample()
    assert decode("{}").two_words == 7


def test_defaults_cannot_be_changed_through_an_object():
    """A default may be shared between decoded objects, since it is frozen."""
    first, second = decode("{}"), decode("{}")

    assert first.free == {} == second.free
    with pytest.raises(TypeError, match="cannot be changed"):
        first.free["k"] = 1


@pytest.mark.parametrize("text", ['{"twoWords": null}', '{"many": null}', '{"inner": null}'])
def test_null_elsewhere_is_an_error(text):
    """A null is refused where the annotation does not allow None."""
    with pytest.raises(msgspec.ValidationError, match="null"):
        decode(text)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"twoWords": "1"}', "twoWords"),
        ('{"many": [{"size": 1}, {"size": "x"}]}', r"many\[1\]\.size"),
        ('{"inner": []}', "inner"),
        ('{"example.com/a.b-c": 1}', "example.com/a.b-c"),
    ],
)
def test_wrong_types_name_the_wire_path(text, path):
    """The error of a wrong type has the path in wire names."""
    with pytest.raises(msgspec.ValidationError, match=path):
        decode(text)


def test_objects_are_frozen():
    """Neither decoded nor constructed objects can be changed."""
    for value in (decode('{"plain": "x"}'), Sample(plain="x")):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            value.plain = "y"
        with pytest.raises((attrs.exceptions.FrozenInstanceError, AttributeError)):
            value.twoWords = 1


def test_post_init_runs_for_decoded_and_constructed_objects():
    """__attrs_post_init__ is called for decoded objects as well."""
    assert decode('{"plain": "ABC"}').plain == Sample(plain="ABC").plain == "abc"


def test_positional_arguments_are_refused():
    """Wire classes are created with keywords."""
    with pytest.raises(TypeError):
        Sample("x")  # type: ignore[misc]


def test_classes_can_be_decoded_as_parts_of_others():
    """A wire class works as an element of msgspec's own containers and structs."""

    class Envelope(msgspec.Struct):
        items: list[Sample]

    envelope = decode('{"items": [{"twoWords": 1}]}', Envelope)
    assert envelope.items == [Sample(two_words=1)]


def test_to_json_omits_defaults():
    """Only values that differ from the default are written."""
    assert to_json(Sample()) == {}
    assert to_json(Sample(two_words=0)) == {"twoWords": 0}
    assert to_json(Sample(with_acronym=False)) == {"withDNSName": False}


def test_decoding_reverses_to_json():
    """Encoding and decoding return an equal object."""
    value = Sample(
        plain="x",
        label="l",
        type_="t",
        many=(Inner(), Inner(size=2)),
        free={"k": 1},
        inner=Inner(size=4),
    )

    data = to_json(value)

    assert data["many"] == [{}, {"size": 2}]
    assert decode(msgspec.json.encode(data)) == value


def test_to_json_writes_times_as_kubernetes_does():
    """Times are RFC 3339 texts in UTC."""
    text = '{"lastTransitionTime": "2026-01-02T03:04:05Z", "type": "Ready"}'
    condition = decode(text, meta.Condition)

    assert to_json(condition)["lastTransitionTime"] == "2026-01-02T03:04:05Z"


@pytest.mark.parametrize(
    "cls",
    [
        cls
        for module in (meta, core, batch, jobset)
        for cls in vars(module).values()
        if isinstance(cls, type) and attrs.has(cls) and cls.__module__ == module.__name__
        if cls not in {meta.ObjectKey, meta.ResourceInfo}
    ],
)
def test_every_wire_class_of_the_api_decodes_an_empty_object(cls):
    """Every field has a default, since the API server omits empty ones."""
    assert decode("{}", cls) == cls()

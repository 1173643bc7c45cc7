"""Bodies of writes."""

from types import MappingProxyType

import msgspec
import pytest

from jobsetpy.client import _patches


@pytest.mark.parametrize(
    ("segments", "expected"),
    [
        ((), ""),
        (("metadata", "annotations", "a/b"), "/metadata/annotations/a~1b"),
        (("~/~1",), "/~0~1~01"),
        (("items", 0), "/items/0"),
        (("",), "/"),
        (("schlüssel", "-"), "/schlüssel/-"),
    ],
)
def test_pointers_are_escaped(segments, expected):
    """RFC 6901: tilde first, then slash."""
    assert expected == _patches.pointer(*segments)


def test_operations_carry_a_value_only_if_given():
    """``None`` is a value; its absence is not."""
    path = ("metadata", "labels", "a/b")

    assert _patches.operation("remove", path) == {"op": "remove", "path": "/metadata/labels/a~1b"}
    assert _patches.operation("add", path, None)["value"] is None


def test_metadata_patches_touch_what_they_name_only():
    """No empty parts, which would be needless writes, and None to remove."""
    assert _patches.metadata_patch(labels={"a": "b", "c": None}) == {
        "metadata": {"labels": {"a": "b", "c": None}}
    }
    assert _patches.metadata_patch(annotations={"a": "b"}, resource_version="7") == {
        "metadata": {"annotations": {"a": "b"}, "resourceVersion": "7"}
    }


def test_delete_options_leave_out_what_is_empty():
    """Preconditions appear only when there are some."""
    assert _patches.delete_options("", "", "") == {"apiVersion": "v1", "kind": "DeleteOptions"}
    assert _patches.delete_options("Orphan", "u", "3") == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Orphan",
        "preconditions": {"uid": "u", "resourceVersion": "3"},
    }


def test_read_only_mappings_are_encoded_like_dicts():
    """Cached objects hold read-only views, which may stand in bodies."""
    body = MappingProxyType({"a": MappingProxyType({"b": [1, "ü"]})})

    assert msgspec.json.decode(_patches.encode(body)) == {"a": {"b": [1, "ü"]}}


def test_what_is_no_json_is_refused():
    """A mistake in a body is a TypeError, not a broken request."""
    with pytest.raises(TypeError, match="object"):
        _patches.encode({"a": object()})

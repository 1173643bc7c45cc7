"""Bodies of writes."""

from types import MappingProxyType

import msgspec
import pytest

from jobsetpy.client import _patches


def test_delete_options_have_no_empty_fields():
    """Preconditions are present only if there are some."""
    assert _patches.delete_options("", "", "") == {"apiVersion": "v1", "kind": "DeleteOptions"}
    assert _patches.delete_options("Orphan", "u", "3") == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Orphan",
        "preconditions": {"uid": "u", "resourceVersion": "3"},
    }


def test_read_only_mappings_are_encoded_like_dicts():
    """Cached objects have read-only views, which may be part of bodies."""
    body = MappingProxyType({"a": MappingProxyType({"b": [1, "ü"]})})

    assert msgspec.json.decode(_patches.encode(body)) == {"a": {"b": [1, "ü"]}}


def test_value_that_is_not_json_is_refused():
    """A mistake in a body is a TypeError, not a broken request."""
    with pytest.raises(TypeError, match="object"):
        _patches.encode({"a": object()})

"""Label selectors as fields: the semantics of metav1.LabelSelector."""

import msgspec
import pytest

from jobsetpy.api.label_selectors import LabelSelector

LABELS = {"team": "red", "tier": "web"}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({}, True),
        ({"matchLabels": {"team": "red"}}, True),
        ({"matchLabels": {"team": "red", "tier": "db"}}, False),
        ({"matchExpressions": [{"key": "team", "operator": "In", "values": ["red"]}]}, True),
        ({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}, False),
        ({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["red"]}]}, False),
        ({"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}, True),
        ({"matchExpressions": [{"key": "team", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}, False),
        (
            {
                "matchLabels": {"team": "red"},
                "matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}],
            },
            False,
        ),
    ],
)
def test_a_selector_selects_as_in_the_api(selector, expected):
    """All parts must hold; an empty selector selects everything."""
    assert msgspec.convert(selector, LabelSelector).matches(LABELS) is expected

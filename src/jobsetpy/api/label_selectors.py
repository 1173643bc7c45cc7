"""Label selectors as fields of objects: metav1.LabelSelector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from jobsetpy.api._wire import field, wire


@wire
class LabelRequirement:
    """metav1.LabelSelectorRequirement."""

    key: str = field("Key of the label.", default="", required=True)
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = field(
        "Relation of the label to the values.", default="Exists", required=True
    )
    values: tuple[str, ...] = field("Values for In and NotIn; empty for the others.", default=())

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels satisfy the requirement; NotIn includes objects without the key."""
        match self.operator:
            case "Exists":
                return self.key in labels
            case "DoesNotExist":
                return self.key not in labels
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values


@wire
class LabelSelector:
    """metav1.LabelSelector, for a field of a resource of your own.

    Args:
        match_labels: labels that an object must have.
        match_expressions: requirements that its labels must satisfy.
    """

    match_labels: Mapping[str, str] = field("Labels that an object must have.", factory=dict)
    match_expressions: tuple[LabelRequirement, ...] = field(
        "Requirements that its labels must satisfy.", default=()
    )

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with these labels is selected; an empty selector selects all."""
        return self.match_labels.items() <= labels.items() and all(
            each.matches(labels) for each in self.match_expressions
        )

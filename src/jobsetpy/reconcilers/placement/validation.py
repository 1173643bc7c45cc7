"""Rules for JobSets with exclusive placement."""

from __future__ import annotations

from collections.abc import Iterator

from jobsetpy.api import keys
from jobsetpy.reconcilers.rules.field_errors import FieldError, invalid
from jobsetpy.reconcilers.rules.json_tree import Json, child, job_spec, objects, text


def exclusive_placement(jobset: Json) -> Iterator[FieldError]:
    """Refuse Jobs whose pods have no completion index: none would be a leader, and all be rejected.

    With the strategy by node selectors pods do not follow a leader.
    """
    for at, job in objects(child(jobset, "spec"), "replicatedJobs"):
        own = child(job, "template", "metadata")
        notes = [child(meta, "annotations") for meta in (child(jobset, "metadata"), own)]
        placed = [each for each in notes if keys.EXCLUSIVE_TOPOLOGY_ANNOTATION in each]
        by_selector = any(keys.NODE_SELECTOR_ANNOTATION in each for each in placed)
        mode = text(job_spec(job), "completionMode")
        if placed and not by_selector and mode == "NonIndexed":
            why = (
                f"must be Indexed with the annotation {keys.EXCLUSIVE_TOPOLOGY_ANNOTATION}, since "
                "pods follow that with index 0 into its domain; NonIndexed Jobs can be placed with "
                f"the annotation {keys.NODE_SELECTOR_ANNOTATION} in addition"
            )
            yield invalid(f"spec.replicatedJobs[{at}].template.spec.completionMode", mode, why)

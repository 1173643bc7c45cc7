"""Warnings about a new JobSet that is accepted."""

from __future__ import annotations

from jobsetpy.reconcilers.coscheduling.backends import PODGROUP
from jobsetpy.reconcilers.coscheduling.field_validation import native_only
from jobsetpy.reconcilers.coscheduling.validation import coscheduling_warnings
from jobsetpy.reconcilers.failure_policy.validation import failure_policy_warnings
from jobsetpy.reconcilers.lost_nodes.validation import lost_node_warnings
from jobsetpy.reconcilers.restart_in_place.validation import agents, heartbeats, launchers
from jobsetpy.reconcilers.rules.annotations import check_annotations
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.field_errors import FieldWarning
from jobsetpy.reconcilers.rules.injected_containers import pull_secret_warnings
from jobsetpy.reconcilers.rules.json_tree import Json, child
from jobsetpy.reconcilers.validation.kueue import kueue_warnings


def warnings(
    jobset: Json, features: Features, *, pull_secret: str = "", backend: str = PODGROUP
) -> list[FieldWarning]:
    """Return all warnings, in order of their subject.

    Args:
        jobset: accepted JobSet.
        features: enabled feature gates.
        backend: current scheduler of gangs.
        pull_secret: name of the Secret added for images of injected containers.
    """
    found = [
        *check_annotations(jobset).warnings,
        *agents.warnings(jobset, features),
        *launchers.warnings(jobset, features),
        *heartbeats.warnings(jobset),
        *coscheduling_warnings(jobset),
        *native_only(child(jobset, "spec"), backend),
        *kueue_warnings(jobset),
        *lost_node_warnings(jobset),
        *failure_policy_warnings(child(jobset, "spec")),
    ]
    return found if pull_secret else [*found, *pull_secret_warnings(jobset)]

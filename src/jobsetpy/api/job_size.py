"""Number of pods of a Job, for readers of models and of JSON; it loads nothing."""

from __future__ import annotations


def pods_at_once(parallelism: int | None, completions: int | None, succeeded: int = 0) -> int:
    """Return the number of pods that a Job runs in parallel.

    Args:
        parallelism: parallelism of the Job; 1 if absent.
        completions: completions of the Job; absent for a work queue, which ends with its first
            success.
        succeeded: number of its pods that have succeeded.
    """
    pods = 1 if parallelism is None else parallelism
    if completions is None:
        return 0 if succeeded else pods
    return max(0, min(pods, completions - succeeded))

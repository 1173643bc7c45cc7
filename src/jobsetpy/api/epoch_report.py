"""Epoch that an agent reports: an annotation of its pod."""

from __future__ import annotations

from typing import Final

from jobsetpy.api import keys

INVALID: Final = -1
"""Result of ``parse_epoch`` for a text that is not an epoch."""


def parse_decimal(text: str | None) -> int | None:
    """Return a decimal number ≥ 0 of at most ten digits, or ``None`` for anything else."""
    # Ten digits hold every int32; int() of a long text would be slow, and takes "1_0" and " 1".
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 10:
        return None
    return int(text)


def parse_epoch(text: str | None) -> int:
    """Return an epoch annotation as a number.

    Returns:
        The epoch, 1 to ``keys.MAX_EPOCH``; 0 without an annotation, which means that the agent has
        not started yet; ``INVALID`` for anything else.
    """
    if text is None:
        return 0
    epoch = parse_decimal(text)
    return epoch if epoch is not None and 1 <= epoch <= keys.MAX_EPOCH else INVALID

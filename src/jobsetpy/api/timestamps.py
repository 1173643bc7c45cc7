"""Timestamps in the format of the API server: RFC 3339, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def seconds_text(at: datetime) -> str:
    """Format as Kubernetes' Time, ``2026-01-31T12:00:00Z``; ``at`` is in UTC."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def millis_text(at: datetime) -> str:
    """Format as Time with exactly three decimals, for measured times; ``at`` is in UTC."""
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"


def micros_text(at: datetime) -> str:
    """Format as Kubernetes' MicroTime, with exactly six decimals; ``at`` is in any time zone."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

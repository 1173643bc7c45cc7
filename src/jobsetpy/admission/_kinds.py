"""Kinds that only admission reads, as plain JSON."""

from __future__ import annotations

from typing import Final

from jobsetpy.api.core import PersistentVolumeClaim
from jobsetpy.api.meta import ResourceInfo
from jobsetpy.api.unstructured import unstructured

StoredClaim: Final = unstructured(PersistentVolumeClaim.RESOURCE)
LimitRange: Final = unstructured(ResourceInfo("", "v1", "LimitRange", "limitranges"))

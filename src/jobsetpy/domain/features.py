"""Feature gates as far as the rules depend on them.

They keep the names that JobSet users know (``RestartJob``, ``ElasticJobSet``, ``InPlaceRestart``),
and all of them are on unless the configuration says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs


@attrs.frozen
class Features:
    """Which optional rules apply.

    Args:
        restart_job: the actions ``RestartJob*`` and ``RestartReplicatedJob*``, and the label that
            counts a Job's own restarts.
        elastic_jobset: a changed parallelism is carried over to Jobs that are running.
        in_place_restart: restarts in place through the epochs of pods.
    """

    restart_job: bool = True
    elastic_jobset: bool = True
    in_place_restart: bool = True

    @classmethod
    def from_gates(cls, gates: Mapping[str, bool]) -> Features:
        """From a ``featureGates`` map; gates of other parts are ignored."""
        return cls(
            restart_job=gates.get("RestartJob", True),
            elastic_jobset=gates.get("ElasticJobSet", True),
            in_place_restart=gates.get("InPlaceRestart", True),
        )

"""Labels of metrics that name the owner of a JobSet's time: its namespace and its queue.

They are off by default, and the number of owners is bounded: namespaces and queues come and go, and
each one has series for as long as the manager runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from jobsetpy.api import keys
from jobsetpy.api.meta import ObjectMeta
from jobsetpy.observability.logging import get_logger
from jobsetpy.reconcilers.rules.time_accounting import Owner

NAMESPACE: Final = "namespace"
QUEUE: Final = "queue"
LABELS: Final[Mapping[str, str]] = {NAMESPACE: "jobset_namespace", QUEUE: "queue"}
"""Labels by the word of the configuration. Prometheus gives each series of a target that it finds
in Kubernetes the label ``namespace``, that of the manager."""
MAX_OWNERS: Final = 500
OTHER: Final = "other"
"""Value of all labels for owners beyond the bound."""

_VALUES: Final[Mapping[str, Callable[[ObjectMeta], str]]] = {
    NAMESPACE: lambda meta: meta.namespace,
    QUEUE: lambda meta: meta.labels.get(keys.KUEUE_QUEUE_LABEL, ""),
}
_LOG: Final = get_logger("metrics")


class Owners:
    """Owners of JobSets, as the labels that are configured name them."""

    def __init__(self) -> None:
        self.configure(())

    def configure(self, words: Sequence[str], *, limit: int = MAX_OWNERS) -> None:
        """Set the labels, before the first owner is asked for.

        Args:
            words: ``NAMESPACE`` and ``QUEUE``, or one of them, or none.
            limit: maximum number of owners.
        """
        self.labels = tuple(LABELS[word] for word in words)
        self._values = [_VALUES[word] for word in words]
        self._limit = limit
        self._known: set[Owner] = set()
        self._full = False

    def of(self, meta: ObjectMeta) -> Owner:
        """Return the values of the labels for a JobSet; O(1)."""
        owner = tuple(value(meta) for value in self._values)
        if owner in self._known or len(self._known) < self._limit:
            self._known.add(owner)
            return owner
        if not self._full:
            self._full = True
            _LOG.warning(
                "the metrics of further namespaces and queues have the label values 'other'",
                limit=self._limit,
                labels=list(self.labels),
            )
        return (OTHER,) * len(owner)


OWNERS: Final = Owners()
"""Owners in the metrics of this process."""


class OwnedCounter(Collector):
    """Counter with the labels of owners before its own label.

    Args:
        name: name without ``_total``.
        text: description.
        label: its own label.
        values: values of that label, of which each has a series from the start without owners.
    """

    def __init__(self, name: str, text: str, label: str, values: Sequence[str]) -> None:
        self._declared, self._label, self._values = (name, text), label, values
        self._sums: dict[tuple[str, ...], float] = {}

    def inc(self, owner: Owner, value: str, amount: float) -> None:
        """Add an amount; O(1)."""
        series = (*owner, value)
        self._sums[series] = self._sums.get(series, 0.0) + amount

    def collect(self) -> Iterator[Metric]:
        """Yield the metric."""
        family = CounterMetricFamily(*self._declared, labels=[*OWNERS.labels, self._label])
        sums: dict[tuple[str, ...], float]
        sums = {} if OWNERS.labels else {(value,): 0.0 for value in self._values}
        sums.update(self._sums)
        for series, amount in sums.items():
            family.add_metric(series, amount)
        yield family

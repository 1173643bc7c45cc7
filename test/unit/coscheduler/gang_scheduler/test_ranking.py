"""Ranking against a sorted list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.coscheduler.gang_scheduler.ranking import Ranking

changes = st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 9)))


@given(changes)
def test_ranking_has_the_order_of_ranks(made):
    """Keys are set, changed and removed; each rank includes its key, so that ranks are unique."""
    ranking: Ranking[int] = Ranking()
    model: dict[int, tuple[int, int]] = {}
    for key, rank in made:
        ranking.put(key, None if rank is None else (rank, key))
        model.pop(key, None)
        if rank is not None:
            model[key] = (rank, key)
        order = sorted(model, key=model.__getitem__)
        assert list(ranking) == order
        assert list(reversed(ranking)) == order[::-1]
        assert [each in ranking for each in range(6)] == [each in model for each in range(6)]
        assert len(ranking) == len(model)

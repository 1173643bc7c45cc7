"""Pages with the dashboard's graphs: axes, gaps, and panels without data."""

import math
import re

import pytest

from hack.docs.dashboard_page import SHOWN, Panel, Series, in_unit, page, scale
from hack.docs.record_dashboard import _with_gaps, file_name, rows
from hack.generate import monitoring_dashboard


@pytest.mark.parametrize(
    ("greatest", "unit", "expected"),
    [
        (0.0, "s", (1.0, 2.0)),
        (7.0, "short", (2.0, 8.0)),
        (3.0, "short", (1.0, 3.0)),
        (0.04, "s", (0.01, 0.04)),
        (1.0, "s", (0.2, 1.0)),
        (1080.0, "s", (300.0, 1200.0)),
        (365 * 86400.0, "s", (100 * 86400.0, 400 * 86400.0)),
        (0.3, "percentunit", (0.25, 1.0)),
        (70 * 2.0**20, "bytes", (2.0**24, 5 * 2.0**24)),
    ],
)
def test_an_axis_ends_above_the_greatest_value_at_a_round_number(greatest, unit, expected):
    """It has two to five steps, which are integers for counts."""
    assert scale(greatest, unit) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("value", "unit", "step", "expected"),
    [
        (0, "s", 1, "0"),
        (0.02, "s", 0.01, "20 ms"),
        (90, "s", 20, "90 s"),
        (90, "s", 30, "1.5 min"),
        (7200, "s", 3600, "2 h"),
        (31_536_000, "s", 8_640_000, "365 d"),
        (2**26, "bytes", 2**24, "64 MiB"),
        (0.5, "percentunit", 0.25, "50%"),
        (12_000, "short", 1000, "12k"),
        (0.4, "ops", 0.2, "0.4/s"),
    ],
)
def test_a_value_is_written_in_its_unit(value, unit, step, expected):
    """Values are short, because they are next to an axis."""
    assert in_unit(value, unit, step) == expected


def test_a_line_has_a_gap_where_a_value_is_missing():
    """Neighbouring values are joined; a single value is a dot."""
    points = _with_gaps({0.0: 1.0, 1.0: 2.0, 3.0: 1.0}, 0.0, 4.0, 1.0)
    assert [math.isnan(value) for _, value in points] == [False, False, True, False, True]
    text = page("Row", [Panel("P", "short", [Series("a", points)])], 0.0, 4.0)
    (path,) = re.findall(r'<path d="(M[^"]*)" fill="none"', text)
    assert re.sub(r"[\d. ]+", "", path) == "MhLMh"


def test_a_panel_reports_missing_data_and_omitted_lines():
    """Names are escaped."""
    many = [Series(f"<{n}>", [(0.0, float(n))]) for n in range(SHOWN + 2)]
    panels = [Panel("empty", "s", []), Panel("full", "s", many)]
    text = page("Row", panels, 0.0, 1.0)
    assert text.count("no data") == 1
    assert ("and 2 more" in text, "&lt;11&gt;" in text, "<11>" in text) == (True, True, False)


def test_each_row_of_the_dashboard_has_its_pictures():
    """Rows and panels are those of Grafana's dashboard; names of rows are unique."""
    found = rows()
    assert [*found] == [title for title, _ in monitoring_dashboard.ROWS]
    assert [len(panels) for panels in found.values()] == [
        len(graphs) for _, graphs in monitoring_dashboard.ROWS
    ]
    assert len({file_name(row) for row in found}) == len(found)

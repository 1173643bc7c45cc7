"""Pages with the dashboard's graphs: axes, gaps, and panels without data."""

from hack.docs.dashboard_page import SHOWN, Panel, Series, page
from hack.docs.record_dashboard import file_name, rows
from hack.generate import monitoring_dashboard


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

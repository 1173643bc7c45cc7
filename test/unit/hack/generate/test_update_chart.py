"""The generator of the chart's table of values, and its check for drift."""

import pytest
import yaml

from hack.generate import update_chart

VALUES = """
# -- Its name.
name: ""

server:
  # -- Its port.
  port: 80
  # -- Its limits.
  resources:
    limits:
      cpu: "2" # at most
  # -- Its clients.
  from:
  - anyone: true
# -- More.
more: {}
"""


def test_rows_of_values():
    """A comment describes all values below it; the default is the parsed YAML."""
    assert list(update_chart.rows(VALUES)) == [
        ("name", "", "Its name."),
        ("server.port", 80, "Its port."),
        ("server.resources", {"limits": {"cpu": "2"}}, "Its limits."),
        ("server.from", [{"anyone": True}], "Its clients."),
        ("more", {}, "More."),
    ]


def test_a_value_without_a_comment_is_refused():
    """Every value of the chart has to be documented."""
    with pytest.raises(ValueError, match=r"server\.port has no comment"):
        list(update_chart.rows(VALUES.replace("  # -- Its port.\n", "")))


def test_every_value_of_the_chart_has_a_row():
    """The table has each path of values.yaml, or one that it is part of."""
    text = (update_chart.CHART / "values.yaml").read_text()
    documented = {name for name, _, _ in update_chart.rows(text)}

    def paths(values, prefix=""):
        for key, value in values.items():
            name = f"{prefix}{key}"
            if name in documented:
                continue
            assert isinstance(value, dict), name
            assert value, name
            yield name
            yield from paths(value, f"{name}.")

    assert all(
        any(row.startswith(f"{name}.") for row in documented)
        for name in paths(yaml.safe_load(text))
    )


def test_drift_is_reported(monkeypatch, tmp_path, capsys):
    """A file that differs, and one that is no longer generated, are reported, and fixed."""
    chart = tmp_path / "chart"
    (chart / "files").mkdir(parents=True)
    (chart / "files/old.yaml").write_text("a: 1")
    (chart / "files/rules.yaml").write_text("a: 1")
    monkeypatch.setattr(update_chart, "ROOT", tmp_path)
    monkeypatch.setattr(update_chart, "CHART", chart)
    monkeypatch.setattr(update_chart, "wanted", lambda: {chart / "files/rules.yaml": "a: 2"})

    assert update_chart.main(["--verify"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"chart/files/{name}.yaml is out of date: run make generate" for name in ("rules", "old")
    ]
    assert update_chart.main([]) == 0
    assert update_chart.main(["--verify"]) == 0
    assert [path.read_text() for path in (chart / "files").iterdir()] == ["a: 2"]

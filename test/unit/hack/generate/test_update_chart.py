"""What makes the table of the chart's values, and finds what is not as it was made."""

import pytest

from hack.generate import update_chart

VALUES = """
# -- What it is called.
name: ""

server:
  # -- Where it listens.
  port: 80
  # -- What it may take.
  resources:
    limits:
      cpu: "2" # at most
  # -- Who may call it.
  from:
  - anyone: true
# -- More.
more: {}
"""


def test_rows_of_values():
    """A comment describes all that is below it; the default is what YAML makes of it."""
    assert list(update_chart.rows(VALUES)) == [
        ("name", "", "What it is called."),
        ("server.port", 80, "Where it listens."),
        ("server.resources", {"limits": {"cpu": "2"}}, "What it may take."),
        ("server.from", [{"anyone": True}], "Who may call it."),
        ("more", {}, "More."),
    ]


def test_a_value_without_a_comment_is_refused():
    """Nothing gets into the chart that its readers are not told of."""
    with pytest.raises(ValueError, match=r"server\.port has no comment"):
        list(update_chart.rows(VALUES.replace("  # -- Where it listens.\n", "")))


def test_every_value_of_the_chart_has_a_row():
    """The table has each path of values.yaml, or one that it is part of."""
    import yaml

    text = (update_chart.CHART / "values.yaml").read_text()
    told = {name for name, _, _ in update_chart.rows(text)}

    def paths(values, prefix=""):
        for key, value in values.items():
            name = f"{prefix}{key}"
            if name in told:
                continue
            assert isinstance(value, dict), name
            assert value, name
            yield name
            yield from paths(value, f"{name}.")

    assert all(
        any(row.startswith(f"{name}.") for row in told) for name in paths(yaml.safe_load(text))
    )


def test_drift_is_reported(monkeypatch, tmp_path, capsys):
    """A file that differs, and one that nothing makes any more, are named, and mended."""
    chart = tmp_path / "chart"
    (chart / "files").mkdir(parents=True)
    (chart / "files/old.yaml").write_text("a: 1")
    (chart / "files/rules.yaml").write_text("a: 1")
    monkeypatch.setattr(update_chart, "ROOT", tmp_path)
    monkeypatch.setattr(update_chart, "CHART", chart)
    monkeypatch.setattr(update_chart, "wanted", lambda: {chart / "files/rules.yaml": "a: 2"})

    assert update_chart.main(["--verify"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"chart/files/{name}.yaml is not what update_chart.py makes: make generate"
        for name in ("rules", "old")
    ]
    assert update_chart.main([]) == 0
    assert update_chart.main(["--verify"]) == 0
    assert [path.read_text() for path in (chart / "files").iterdir()] == ["a: 2"]

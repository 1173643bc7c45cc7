"""Pictures of restarts in a browser: texts do not overlap and are not cut off."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import escape, unescape

import pytest

from hack.generate import update_plugin_page
from jobsetpy.kubectl import timeline
from support import patience

pytestmark = pytest.mark.slow

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
START_S = 30.0

# Shows pages, each in a frame of a given width, and lists the defects of each.
CHECK = """<!doctype html><meta charset="utf-8">
%s
<pre id="found"></pre>
<script>
const defects = frame => {
  const page = frame.contentDocument;
  const svg = page.querySelector('svg');
  const whole = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll('text')].map(
    each => ({text: each.textContent, box: each.getBoundingClientRect()}));
  const wrong = [];
  for (const {text, box} of texts)
    if (box.left < whole.left || box.right > whole.right || box.bottom > whole.bottom)
      wrong.push('outside: ' + text);
  texts.forEach((one, at) => texts.slice(at + 1).forEach(two => {
    const apart = one.box.right <= two.box.left || two.box.right <= one.box.left
      || one.box.bottom <= two.box.top + 1 || two.box.bottom <= one.box.top + 1;
    if (!apart) wrong.push('overlap: ' + one.text + ' / ' + two.text);
  }));
  if (page.documentElement.scrollWidth > frame.clientWidth)
    wrong.push('the page is wider than the window');
  return {wrong, texts: texts.length, bars: svg.querySelectorAll('rect > title').length};
};
onload = () => {
  document.getElementById('found').textContent = JSON.stringify(
    [...document.querySelectorAll('iframe')].map(defects));
};
</script>"""
FRAME = '<iframe style="width:%dpx;height:2000px;border:0" srcdoc="%s"></iframe>'

LONG = "x" * 200
EXTREME = [
    {
        "kind": kind,
        "number": 2**31 - 1,
        "target": LONG,
        "counted": False,
        "beganAt": "2026-01-01T00:00:00.000Z",
        "cause": {"reason": LONG, "pod": LONG, "node": LONG, "exitCode": 139},
        "lastPod": LONG,
        "outcome": outcome,
        **durations,
    }
    for kind, outcome, durations in (
        ("InPlace", "Completed", {"detectionMillis": 0, "gatheringMillis": 2**31 - 1}),
        ("RestartReplicatedJob", "Interrupted", {"detectionMillis": 1, "deprecationMillis": 1}),
        ("Recreate", "", {}),
    )
]
HISTORIES = {
    "none": [],
    "extreme": EXTREME,
    "short": [{"kind": "InPlace", "number": 2, "gatheringMillis": 3, "outcome": "Completed"}],
}
for _name, (_moment, _) in update_plugin_page.PICTURES.items():
    _file = update_plugin_page.RECORDED / f"{_moment.file}.json"
    (_answer,) = json.loads(_file.read_text())[_moment.name]["answers"].values()
    HISTORIES[_moment.file] = _answer["body"]["status"]["restartHistory"]


def checked(pages, folder):
    """Return the defects that the browser finds in each page, and its numbers of texts and bars.

    Args:
        pages: widths and pages.
        folder: for files of the browser, which starts once since this takes long.
    """
    file = folder / "check.html"
    file.write_text(CHECK % "".join(FRAME % (width, escape(page)) for width, page in pages))
    profile = f"--user-data-dir={folder / 'profile'}"
    quiet = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
    )
    with subprocess.Popen(
        [BROWSER, *quiet, profile, "--virtual-time-budget=2000", "--dump-dom", file.as_uri()],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            text, _ = process.communicate(timeout=patience.scaled(START_S))
        except subprocess.TimeoutExpired:
            process.kill()
            pytest.skip(f"{BROWSER} shows nothing within {patience.scaled(START_S):.0f} s")
    found = re.search(r'<pre id="found">(.+?)</pre>', text, re.DOTALL)
    if found is None:
        pytest.skip(f"{BROWSER} cannot be used here: it showed no page")
    return json.loads(unescape(found[1]))


@pytest.mark.skipif(BROWSER is None, reason=f"no browser is installed: none of {', '.join(NAMES)}")
def test_texts_of_a_page_are_apart_and_inside(tmp_path):
    """Pictures are made of recorded histories and extreme ones, each on a page."""
    cases = [(1280, history) for history in HISTORIES.items()]
    pages = [
        (
            width,
            f"<!doctype html><body>{timeline.svg(f'Restarts of {name}/{LONG}', history)}</body>",
        )
        for width, (name, history) in cases
    ]
    found = checked(pages, tmp_path)
    for (_, (name, history)), each in zip(cases, found, strict=True):
        assert each["texts"] > 4, name
        assert each["bars"] == sum(
            record.get(phase.key) is not None for record in history for phase in timeline.PHASES
        )
    wrong = {
        (width, name): each["wrong"]
        for (width, (name, _)), each in zip(cases, found, strict=True)
        if each["wrong"]
    }
    assert wrong == {}

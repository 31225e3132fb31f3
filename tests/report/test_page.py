"""The report: one file that needs nothing else, with everything escaped, and it works in a browser."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from remat.batch.cells import Answer, Cell, Job, Outcome
from remat.batch.comparison import Comparison
from remat.report.page import page

VOID = {"meta", "link", "input", "br", "img"}


def cell(instance, algorithm, budget, makespan, outcome=Outcome.FEASIBLE, **more):
    job = Job(
        key=f"{instance}{algorithm}{budget}",
        instance=instance,
        source="x",
        family=instance.partition("/")[0],
        digest="sha256:0",
        kind="chain",
        time_unit="unit",
        memory_unit="unit",
        algorithm=algorithm,
        version="1",
        options={"slots": 3},
        budget=str(budget),
        capacity=budget,
        seed=0,
    )
    known = {} if makespan is None else {"makespan": makespan, "overhead": makespan / 10 - 1, "steps": 5}
    return Cell(job=job, answer=Answer(outcome=outcome, lower_bound=10, peak_memory={"m": budget}, **known, **more))


def example(names=("rotor", "periodic")):
    cells = []
    for number, name in enumerate(names):
        cells += [cell(f"a/{i}", name, 10 * b, 20 + number + i - b) for i in range(3) for b in (1, 2)]
    cells.append(cell("b/<script>alert(1)</script>", "rotor", 5, None, Outcome.INFEASIBLE, detail='"&<b>'))
    cells.append(cell("b/x", "periodic", 5, None, Outcome.CRASHED, detail="died"))
    return Comparison(tuple(cells), notes=("2 < 3",))


class Checker(HTMLParser):
    """Every element is closed, in order; nothing is fetched from anywhere."""

    def __init__(self):
        super().__init__()
        self.open, self.counts = [], {}

    def handle_starttag(self, tag, attrs):
        self.counts[tag] = self.counts.get(tag, 0) + 1
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href"):
                assert value.startswith(("#", "data:")), value

    def handle_startendtag(self, tag, attrs):
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_is_well_formed_and_needs_nothing():
    text = page(example())
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert checker.counts["script"] == 1
    assert not re.search(r"https?://", text)
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text
    assert "2 &lt; 3" in text


def test_says_what_was_found():
    text = page(example())
    assert text.count("<svg") == 1 + 3
    for word in ("1.0000", "infeasible", "crashed", "died", "slots=3"):
        assert word in text
    assert "By family" in text


def test_more_algorithms_than_colours():
    text = page(example([f"algorithm{k}" for k in range(11)]))
    assert "others</span>" in text
    Checker().feed(text)


def test_nothing_solved():
    text = page(Comparison((cell("a/b", "rotor", 5, None, Outcome.UNKNOWN),), interrupted=True))
    assert "Nothing was solved" in text
    assert "Interrupted" in text
    page(Comparison(()))


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

PROBE = """
<script>
window.addEventListener("load", () => {
  const table = document.getElementById("all-cells"), found = {};
  const column = name => [...table.tHead.rows[0].cells].findIndex(c => c.textContent === name);
  const read = name => [...table.tBodies[0].rows].map(r => r.cells[column(name)].dataset.v);
  const press = name => table.tHead.rows[0].cells[column(name)].querySelector("button").click();
  press("makespan"); found.up = read("makespan");
  press("makespan"); found.down = read("makespan");
  press("instance"); found.names = read("instance");
  const box = document.querySelector("input[type=search]");
  box.value = "rotor a/1"; box.dispatchEvent(new Event("input"));
  const left = [...table.tBodies[0].rows].filter(r => !r.hidden);
  found.shown = left.map(r => r.cells[0].textContent + r.cells[2].textContent);
  found.pictures = [...document.querySelectorAll("svg")].map(s => s.getBoundingClientRect())
    .every(b => b.width > 100 && b.height > 50);
  const out = document.createElement("pre"); out.id = "found"; out.textContent = JSON.stringify(found);
  document.body.append(out);
});
</script>
"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_in_a_browser(tmp_path):
    """No errors on the console, tables sort and filter, pictures are visible."""
    path = tmp_path / "report.html"
    path.write_text(page(example()).replace("</body>", PROBE + "</body>"), "utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    options += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    options += ["--enable-logging=stderr", "--dump-dom", f"--user-data-dir={tmp_path / 'profile'}"]
    done = subprocess.run([CHROMIUM, *options, path.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr
    found = json.loads(re.search(r'<pre id="found">(.*?)</pre>', done.stdout)[1].replace("&quot;", '"'))
    known = sorted(float(v) for v in found["up"] if v)
    assert found["up"] == [f"{v:g}" for v in known] + ["", ""]
    assert found["down"] == [f"{v:g}" for v in known[::-1]] + ["", ""]
    assert found["names"] == sorted(found["names"])
    assert found["shown"] == ["a/1rotor", "a/1rotor"]
    assert found["pictures"]

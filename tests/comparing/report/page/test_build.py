"""The report: one file that needs nothing else, with everything escaped, and it works in a browser."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from remat.comparing.cells import Answer, Cell, Job, Outcome
from remat.comparing.comparison import Comparison
from remat.comparing.report.page import page, schedules
from remat.comparing.report.sentences import sentences
from remat.report.views.minimap import miniature, pack
from tests.browser import Browser, needs_browser
from tests.report.results import offload_result
from tests.report.views.by_hand import halves, offloaded, reversed_adjoint, spilled_tree

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
    """An HTML check: all elements are closed in order, and no resource is fetched."""

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


def tooltips(text):
    """Return the headings of all tables with their tooltips."""
    heads = re.findall(r'<th scope="col"([^>]*)><button type="button">([^<]*)', text)
    return {heading: match[1] for about, heading in heads if (match := re.search('title="([^"]*)"', about))}


@pytest.mark.parametrize("baseline", ["", "rotor"])
def test_every_ratio_says_of_what_to_what(baseline):
    found = tooltips(page(replace(example(), baseline=baseline)))
    ratios = [heading for heading in found if heading.startswith("ratio ")]
    assert len(ratios) == 4
    for heading in ratios:
        assert found[heading].startswith("The algorithm&#x27;s makespan / "), heading
        assert "geometric mean over the cells" in found[heading]
    over = "that of rotor" if baseline else "the best makespan of the row"
    assert found["periodic"] == f"Makespan of periodic / {over}"
    heads = re.findall('<button type="button">(ratio [^<]*)', page(replace(example(), baseline=baseline)))
    assert set(heads) == set(ratios)


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


def test_cells_are_grouped_by_instance_and_budget():
    """One grouping for the page's grid and the two of the terminal, seeds and all."""
    from remat.comparing.report.tables import grid, leaders

    found = example()
    assert list(found.by_case) == [
        *((f"a/{i}", f"{10 * b}") for i in range(3) for b in (1, 2)),
        ("b/<script>alert(1)</script>", "5"),
        ("b/x", "5"),
    ]
    assert sorted(map(id, found)) == sorted(id(cell) for cells in found.by_case.values() for cell in cells)
    assert [cell.job.algorithm for cell in found.by_case["a/0", "10"]] == ["rotor", "periodic"]
    for _, rows in (grid(found), leaders(found)):
        assert [tuple(row[:2]) for row in rows] == list(found.by_case)
    assert grid(found)[1][0] == ["a/0", "10", "19", "1.0000", "1.0526"]
    assert leaders(found)[1][0] == ["a/0", "10", "rotor", "19", "90.0 %", "47.37 %", "2 of 2"]


def test_a_ranking_is_on_the_cells_that_all_solved():
    """`often` is better on all shared cells, but also solves harder ones."""
    cells = [cell("a/1", "often", 10, 20), cell("a/1", "rare", 10, 22), cell("a/2", "often", 10, 30)]
    cells += [cell("a/2", "rare", 10, 27), cell("a/3", "often", 10, 40), cell("a/3", "rare", 10, None, Outcome.UNKNOWN)]
    cells += [cell(f"a/{k}", "never", 10, None, Outcome.REFUSED) for k in (1, 2, 3)]
    comparison = Comparison(tuple(cells))
    (ranking,) = comparison.rankings()
    assert ranking.common == 2
    often, rare = 1 * 30 / 27, 22 / 20 * 1
    assert [(rank.algorithm, rank.solved, rank.cells) for rank in ranking.ranks] == [("rare", 2, 3), ("often", 3, 3)]
    assert [rank.ratio for rank in ranking.ranks] == pytest.approx([rare**0.5, often**0.5])
    assert [rank.wins for rank in ranking.ranks] == [1, 1]
    text = page(comparison)
    assert "Mean makespan over the best on the 2 cells that both algorithms solved." in text
    order = [
        'id="ranking"',
        "Not ranked, since no cell was solved: never.",
        "Performance profile",
        'id="best"',
        'id="algorithms"',
        'id="grid"',
        'id="cells"',
        '<details id="words">',
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_families_are_ranked_apart_where_nothing_is_common():
    cells = [cell("a/1", "rotor", 10, 20), cell("b/1", "liu", 10, 20)]
    cells += [cell("b/1", "rotor", 10, None, Outcome.REFUSED), cell("a/1", "liu", 10, None, Outcome.REFUSED)]
    found = Comparison(tuple(cells)).rankings()
    assert [(ranking.family, ranking.common, len(ranking.ranks)) for ranking in found] == [("a", 1, 1), ("b", 1, 1)]
    assert Comparison(()).rankings() == []


def test_budgets_have_units():
    from remat.comparing.report.tables import budget_text

    def shown(given, capacity, unit):
        one = cell("a/1", "rotor", 10, 20)
        return budget_text(replace(one, job=replace(one.job, budget=given, capacity=capacity, memory_unit=unit)))

    assert shown("40%", 2**30, "B") == "40% = 1 GiB"
    assert shown("40%", 12_345, "unit") == "40% = 12,345"
    assert shown("1073741824", 2**30, "B") == "1 GiB"
    assert shown("4GB", 4 * 10**9, "B") == "4GB"
    assert shown("", None, "B") == ""


def test_each_picture_explains_its_own_colours():
    for figure in figures(page(pictured())):
        key = figure[figure.index('class="legend keys"') :]
        assert ">memory</span>" in key
        assert ('"k-v"></i>kept' in key) == ('<path class="k-v"' in figure)
        assert ("spilled</span>" in key) == ('class="t-S" d=' in figure)


def test_axes_of_charts_have_names_and_are_linear_where_they_can_be():
    from remat.comparing.report.page.charts import curves

    def drawn(top):
        return curves({"a": [(1.0, 0.0), (2.0, top)]}, ["a"], [(1.0, "1"), (2.0, "2")], "budget")

    for top, name in ((0.5, "overhead"), (50.0, "overhead (logarithmic)")):
        assert f">{name}</text>" in drawn(top)
        assert ">budget</text>" in drawn(top)
    heights = [float(y) for y in re.findall(r'y="([\d.]+)" text-anchor="end">\d+ %', drawn(0.5))]
    steps = {round(a - b) for a, b in pairwise(heights)}
    assert len(heights) >= 5
    assert max(steps) - min(steps) <= 1


def test_more_algorithms_than_colours():
    text = page(example([f"algorithm{k}" for k in range(11)]))
    assert "others</span>" in text
    Checker().feed(text)


def test_a_page_without_solutions_is_built():
    text = page(Comparison((cell("a/b", "rotor", 5, None, Outcome.UNKNOWN),), interrupted=True))
    assert "Nothing was solved" in text
    assert "Interrupted" in text
    page(Comparison(()))


KINDS = {
    "chain": halves,
    "chain, offloaded": offloaded,
    "adjoint": reversed_adjoint,
    "dag": offload_result,
    "tree": spilled_tree,
}


def pictured(kinds=KINDS):
    """A comparison of cells with pictures, the better one of each instance and budget with its own."""
    cells = []
    for kind, build in kinds.items():
        result = build()
        picture = pack(miniature(result, kind.partition(",")[0]))
        cells.append(cell(f"a/{kind}", "better", 10, float(result.makespan), picture=picture))
        cells.append(cell(f"a/{kind}", "worse", 10, 2 * float(result.makespan), picture=picture))
    return Comparison(tuple(cells))


def figures(text):
    return re.findall(r'<figure class="schedule">.*?</figure>', text)


def test_the_best_schedule_of_each_instance_and_budget_is_drawn():
    text = page(pictured())
    Checker().feed(text)
    drawn = figures(text)
    assert len(drawn) == len(KINDS)
    for kind, figure in zip(KINDS, drawn, strict=True):
        assert f"a/{kind}, 10" in figure
        assert "better" in figure
        assert "worse" not in figure
        assert figure.count("<svg") == 2
    assert '<a href="#schedules">' in text
    chain, away, adjoint, dag, tree = drawn
    assert "peak 6,291,456: B2" in chain
    assert "kept 1,572,864, checkpoint 1,048,576, recomputed 3,145,728" in chain
    assert "offloaded 1,572,864" in away
    assert 'class="stroke k-f"' in adjoint
    assert 'class="k-e"' in dag
    assert "peak 7: b" in dag
    assert 'class="budget"' in dag
    assert "6 nodes, 20 spilled from 1 of them" in tree
    assert 'class="t-S"' in tree


def test_the_memory_line_reaches_its_peak_and_the_budget_lies_where_it_should():
    """Heights of the drawing against the figures: the device holds at most 7 of 10."""
    figure = figures(page(pictured({"dag": offload_result})))[0]
    result = offload_result()
    peak = result.peak_memory["device"]
    line = re.search(r'<path class="memory" d="M60 (\d+)([^"]*)z"', figure)
    base, highest = float(line[1]), min(float(y) for y in re.findall(r"V([\d.]+)", line[2]))
    limit = float(re.search(r'<path class="budget" d="M60 ([\d.]+)H', figure)[1])
    assert (base - highest) / (base - limit) == pytest.approx(peak / 10, abs=0.01)
    assert float(re.search(r'class="peak" cx="[\d.]+" cy="([\d.]+)"', figure)[1]) == pytest.approx(highest, abs=0.1)


def test_names_in_pictures_are_escaped():
    from dataclasses import replace

    from tests.report.results import OFFLOAD, result_of

    hostile = "<img src=x>"
    document = json.loads(json.dumps(OFFLOAD).replace('"device"', json.dumps(hostile)))
    result = result_of(document | {"tasks": document["tasks"][:1], "values": document["values"][:1]}, [{"run": "a"}])
    record = miniature(result, "dag")
    record = replace(record, rows=tuple(replace(row, name=hostile) for row in record.rows))
    record = replace(record, pixels=replace(record.pixels, remark=hostile))
    text = page(Comparison((cell("a/b", hostile, 5, 7, picture=pack(record)),)))
    assert len(figures(text)) == 1
    assert "<img" not in text
    Checker().feed(text)


def test_a_damaged_picture_is_left_out():
    whole = pictured({"dag": offload_result})
    assert figures(page(whole))
    text = whole.cells[0].answer.picture
    for damaged in (text[:-9], "x" + text[1:], "[]"):
        cells = (cell("a/b", "rotor", 5, 7, picture=damaged),)
        assert 'id="schedules"' not in page(Comparison(cells))
    letters = miniature(offload_result(), "dag")
    from dataclasses import replace

    strange = replace(letters, rows=tuple(replace(row, slices="?3<x>9q200") for row in letters.rows))
    assert figures(page(Comparison((cell("a/b", "rotor", 5, 7, picture=pack(strange)),))))


def test_pictures_of_many_schedules_are_bounded(monkeypatch):
    picture = pack(miniature(halves(), "chain"))
    cells = [cell(f"a/{i}", "rotor", b, 20, picture=picture) for i in range(8) for b in (10, 20, 30)]
    assert len(figures(page(Comparison(tuple(cells))))) == 24
    one = len(figures(page(Comparison(tuple(cells[:1]))))[0])
    monkeypatch.setattr(schedules, "MOST_BYTES", 10.5 * one)
    text = page(Comparison(tuple(cells)))
    drawn = figures(text)
    assert sum(len(figure) for figure in drawn) <= 10.5 * one
    # Each instance has one before any has two.
    assert {re.search("a/[0-9]", figure)[0] for figure in drawn} == {f"a/{i}" for i in range(8)}
    assert f"and {24 - len(drawn)} more, too many for this page" in text


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
  found.shown = left.map(r => r.cells[column("instance")].textContent + r.cells[column("algorithm")].textContent);
  const schedules = [...document.querySelectorAll("figure.schedule")];
  found.schedules = schedules.map(f => [...f.querySelectorAll("path, circle")].filter(shape => {
    const box = shape.getBoundingClientRect(), style = getComputedStyle(shape);
    return box.width + box.height > 0 && (style.fill !== "none" || style.stroke !== "none");
  }).length);
  found.outside = schedules.flatMap(f => [...f.querySelectorAll("svg")]).flatMap(svg => {
    const frame = svg.getBoundingClientRect();
    return [...svg.querySelectorAll("text")].filter(t => {
      const box = t.getBoundingClientRect();
      return box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1;
    }).map(t => t.textContent);
  });
  found.colours = [...new Set([...document.querySelectorAll("figure.schedule path")]
    .map(p => getComputedStyle(p).fill + getComputedStyle(p).stroke))];
  found.paper = getComputedStyle(document.body).backgroundColor;
  found.pictures = [...document.querySelectorAll("svg")].map(s => s.getBoundingClientRect())
    .every(b => b.width > 100 && b.height > 50);
  const out = document.createElement("pre"); out.id = "found"; out.textContent = JSON.stringify(found);
  document.body.append(out);
});
</script>
"""


def in_browser(comparison, folder, *more):
    """Open the report with the probe in it, and return what the probe found."""
    path = folder / "report.html"
    path.write_text(page(comparison).replace("</body>", PROBE + "</body>"), "utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    options += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    options += ["--enable-logging=stderr", "--dump-dom", f"--user-data-dir={folder / 'profile'}", *more]
    done = subprocess.run([CHROMIUM, *options, path.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr
    return json.loads(re.search(r'<pre id="found">(.*?)</pre>', done.stdout)[1].replace("&quot;", '"'))


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_schedules_in_a_browser(tmp_path):
    """Their shapes can be seen, their words lie within them, in light and in dark."""
    light = in_browser(pictured(), tmp_path)
    dark = in_browser(pictured(), tmp_path, "--blink-settings=preferredColorScheme=0")
    for found in (light, dark):
        assert len(found["schedules"]) == len(KINDS)
        assert all(shapes >= 5 for shapes in found["schedules"])
        assert found["outside"] == []
        assert found["pictures"]
        assert len(found["colours"]) >= 6
    assert light["paper"] != dark["paper"]
    assert not set(light["colours"]) & set(dark["colours"])


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_the_page_works_in_a_browser(tmp_path):
    """No errors on the console, tables sort and filter, pictures are visible."""
    found = in_browser(example(), tmp_path)
    known = sorted(float(v) for v in found["up"] if v)
    assert found["up"] == [f"{v:g}" for v in known] + ["", ""]
    assert found["down"] == [f"{v:g}" for v in known[::-1]] + ["", ""]
    assert found["names"] == sorted(found["names"])
    assert found["shown"] == ["a/1rotor", "a/1rotor"]
    assert found["pictures"]


@needs_browser
def test_nothing_is_cut_on_narrow_screens(tmp_path):
    """The page scrolls down only; wide tables scroll in their frames. On wide ones, remarks are within the screen."""
    told = "algorithm auto tries others, which may find a schedule outside this class"
    cells = [cell(f"chains/gpt2s_b8_s1024_{k}", "periodic", 6 << 30, 440 + k, detail=told) for k in range(3)]
    cells += [cell(f"chains/gpt2s_b8_s1024_{k}", "dag-offload-best", 6 << 30, 420 + k) for k in range(3)]
    cells += [
        cell("dags/unet", "dag-offload-best", 6 << 30, 9),
        cell("dags/unet", "periodic", 6, None, Outcome.REFUSED),
    ]
    units = [replace(one, job=replace(one.job, time_unit="ms", memory_unit="B", budget="80%")) for one in cells]
    path = tmp_path / "report.html"
    path.write_text(page(Comparison(tuple(units))), "utf-8")
    with Browser(420, 800) as browser:
        browser.open(path)
        assert browser.run("document.documentElement.scrollWidth") == 420
        browser.resize(1280, 800)
        assert browser.run("document.documentElement.scrollWidth") == 1280
        for name in ("leaders", "standings", "families", "all-cells"):
            table = f"document.querySelector('#{name}')"
            assert browser.run(f"{table}.offsetWidth <= {table}.parentElement.clientWidth"), name
        assert browser.errors == []


def test_ratios_spread_over_seeds():
    cells = []
    for seed, makespans in enumerate(((10, 20), (11, 22), (12, 24))):
        for instance, makespan in zip("ab", makespans, strict=True):
            one = cell(instance, "rotor", 10, makespan)
            cells.append(replace(one, job=replace(one.job, seed=seed, key=f"{instance}{seed}")))
        cells.append(cell("a", "periodic", 10, 20))
    comparison = Comparison(tuple(cells))
    standing = next(s for s in comparison.standings() if s.algorithm == "rotor")
    # Over the best: 1, 1.1 and 1.2 in each seed.
    assert standing.spread == pytest.approx(0.1)
    assert standing.ratio_to_best == pytest.approx((1 * 1.1 * 1.2) ** (1 / 3))
    text = page(comparison)
    assert " ± 0.1000" in text
    relative = replace(comparison, baseline="periodic")
    assert relative.ratio(cells[0]) == 0.5
    assert relative.ratio(cells[1]) is None  # the baseline was not asked
    assert "ratio to periodic" in page(relative)


def test_charts_have_legends_and_show_what_coincides():
    cells = [cell("a", "periodic", budget, 30 - budget) for budget in (10, 20)]
    cells += [cell("a", "rotor", budget, 30.01 - budget) for budget in (10, 20)]
    cells += [cell("a", "third", budget, 40 - budget) for budget in (10, 20)]
    text = page(Comparison(tuple(cells)))
    charts = re.findall(r"<figure><figcaption>.*?</figure>", text)
    assert charts
    assert all('class="legend"' in chart for chart in charts)
    curve = next(chart for chart in charts if "overhead" in chart)
    dashed = dict(re.findall(r'<title>(\w+)</title><path class="series"[^>]*?(stroke-dasharray="[^"]*")? d=', curve))
    # Of two lines in one place the upper one is dashed: its gaps show the lower one.
    assert list(dashed) == ["periodic", "rotor", "third"]
    assert [bool(dash) for dash in dashed.values()] == [False, True, False]


def test_a_proved_schedule_is_the_best_of_equals_everywhere():
    """The first algorithm ties with a proof: table, card and sentence name the one that is proved optimal."""
    picture = pack(miniature(halves(), "chain"))
    cells = (
        cell("a/1", "rotor", 10, 20, picture=picture),
        cell("a/1", "chain-best", 10, 20, Outcome.OPTIMAL, picture=picture),
    )
    comparison = Comparison(cells)
    text = page(comparison)
    (figure,) = figures(text)
    assert "chain-best · 20 · overhead 100 % · proved optimal" in figure
    assert ">chain-best, rotor</td>" in text
    assert dict(sentences(comparison))["a/1 within 10"].startswith("chain-best and rotor are the quickest")


def test_a_budget_that_would_do_is_in_the_unit_of_the_others():
    need = 5_612_800_000
    one = cell("a/1", "rotor", 10, None, Outcome.INFEASIBLE, least_budget=need)
    one = replace(one, job=replace(one.job, memory_unit="B"))
    other = replace(one, job=replace(one.job, algorithm="keep-all", key="k"), answer=Answer(outcome=Outcome.UNKNOWN))
    text = page(Comparison((other, one)))
    assert ">infeasible, proved; 5.228 GiB is enough</td>" in text
    assert "GB is enough" not in text.partition('id="words"')[0]
    assert "5.613 GB (5.228 GiB) is enough" in text  # in words: the first can be given as a budget
    leading = text[text.index('id="best"') : text.index('id="algorithms"')]
    assert leading.index("Infeasible: no schedule exists, proved.") < leading.index("<table")


def test_cells_show_the_best_bound_of_their_case():
    cells = [cell("a/1", "rotor", 10, 20), cell("a/1", "chain-best", 10, 20, Outcome.OPTIMAL)]
    cells[1] = replace(cells[1], answer=replace(cells[1].answer, lower_bound=19))
    cells += [cell("a/1", name, 5, None, Outcome.INFEASIBLE) for name in ("rotor", "chain-best")]
    table = (
        page(Comparison(tuple(cells))).partition('<table class="sortable" id="all-cells">')[2].partition("</table>")[0]
    )
    names = re.findall(r'<button type="button">(.*?)</button>', table)
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in table.partition("<tbody>")[2].split("</tr>")[:-1]]
    assert [row[names.index("best bound")] for row in rows] == ["19", "19", "", ""]
    assert "seed" not in names


def test_long_tables_say_how_to_see_all_rows():
    short, long = (
        page(Comparison(tuple(cell(f"a/{k}", "rotor", 10, 20) for k in range(count)))) for count in (120, 121)
    )
    assert "scroll in the table" not in short
    assert 'class="scroll whole"><table class="sortable" id="all-cells">' in short
    assert (
        '<p class="soft">121 rows: scroll in the table.</p><div class="scroll"><table class="sortable" id="all-cells">'
        in long
    )


def test_the_profile_has_a_mark_at_each_round_ratio():
    from remat.comparing.report.page.charts import profile

    drawn = profile({"a": [1.0, 1.67], "b": [1.0, 1.2]}, ["a", "b"])
    for ratio in ("1.1", "1.2", "1.3", "1.4", "1.5", "1.6"):
        assert f">{ratio}</text>" in drawn

"""The page of a schedule in a browser: hover, zoom, find, keys, light and dark, narrow."""

import random
import re

import pytest

import remat
from remat.generate import generate
from remat.report.page import write_page
from tests.browser import Browser, needs_browser
from tests.report.results import long_result, offload_result

pytestmark = needs_browser

LEFT = 92


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    made = {
        "chain": remat.solve(remat.example("resnet50"), budget="1GiB", algorithm="rotor"),
        "offload": offload_result(),
        "pipeline": remat.solve(remat.example("uniform_p4"), algorithm="1f1b"),
        "long": long_result(20_000),
        "devices": remat.solve(
            generate("pipeline", "uniform", devices=20, layers=20, micro_batches=24), algorithm="1f1b"
        ),
    }
    made["addresses"] = made["chain"].with_addresses(remat.layout(made["chain"]))
    made["placed"] = made["offload"].with_addresses(remat.layout(made["offload"], memory="host"))
    for name, result in made.items():
        write_page(result, folder / f"{name}.html")
    return folder, made


@pytest.fixture(scope="module")
def browser():
    with Browser() as started:
        yield started


@pytest.fixture
def opened(browser, pages):
    """Open a page by its name, in a window of 1280 x 900."""

    def call(name, width=1280, height=900):
        browser.resize(width, height)
        browser.appear(dark=False)
        browser.open(pages[0] / f"{name}.html")
        browser.wait("document.documentElement.dataset.drawn")
        browser.settle()
        return browser

    yield call
    assert browser.errors == []


def spot(browser, time, down):
    """Return the window position of a time (share of the span) and a vertical offset in the picture."""
    return browser.run(
        f"(() => {{ const box = schedule.canvas.getBoundingClientRect();"
        f" return [box.left + schedule.x({time} * schedule.span), box.top + {down}]; }})()"
    )


def pixel(browser, x, y):
    """The colour at a place of the window."""
    return browser.run(
        f"(() => {{ const box = schedule.canvas.getBoundingClientRect();"
        f" return [...schedule.canvas.getContext('2d').getImageData({x} - box.left, {y} - box.top, 1, 1).data]; }})()"
    )


def move(browser, x, y):
    browser.mouse("mouseMoved", x, y)
    browser.settle()


def text(browser, what):
    return browser.run(f"document.getElementById('{what}').textContent")


@pytest.mark.slow
def test_hover_tells_the_addresses_of_a_residency(opened):
    browser = opened("addresses")
    place = browser.run(
        "(() => { const {low, high, begin, end} = schedule.memories[0].boxes, panel = schedule.panels[1];"
        " return [(begin[5] + end[5]) / 2 / schedule.span, panel.base - (low[5] + high[5]) / 2 * panel.scale]; })()"
    )
    move(browser, *spot(browser, *place))
    low, high, name = browser.run(
        "(() => { const {low, high, owner} = schedule.memories[0].boxes;"
        " return [low[5].toLocaleString('en'), high[5].toLocaleString('en'), schedule.ownerName(owner[5])]; })()"
    )
    assert f"addresses {low} to {high}" in text(browser, "tip")
    assert name in text(browser, "tip")


def test_addresses_have_the_colours_of_the_bytes(opened):
    browser = opened("placed")
    # The device, which is not laid out, then the host with its addresses.
    assert browser.run("schedule.panels.map(panel => [panel.memory.name, Boolean(panel.boxes)])") == [
        ["device", False],
        ["host", False],
        ["host", True],
    ]
    corner = browser.run(  # of a residency: names stand in the middle
        "(() => { const panel = schedule.panels[2], {high, begin} = panel.boxes;"
        " return [begin[0] / schedule.span, panel.base - high[0] * panel.scale]; })()"
    )
    x, y = (place + 3 for place in spot(browser, *corner))
    for by, band in (("group", "schedule.columns.group[boxes.owner[0] / 2]"), ("kind", "boxes.kind[0]")):
        move(browser, x, y)
        label, colour = browser.run(
            f"(() => {{ const {{boxes}} = schedule.panels[2], band = {band};"
            " return [schedule.legend[band].label, schedule.colours.kinds[band]]; })()"
        )
        plain = [*bytes.fromhex(colour[1:]), 255]
        assert browser.run("schedule.by") == by
        assert label in text(browser, "tip")
        assert pixel(browser, x, y) == plain
        browser.run("schedule.filter('no such name')")
        browser.settle()
        assert pixel(browser, x, y) != plain
        browser.run("schedule.filter('')")
        browser.press("c")
        browser.settle()


def test_hover_tells_what_lies_there_and_why(opened, pages):
    browser = opened("chain")
    result = pages[1]["chain"]
    down = browser.run("schedule.panels[0].top + schedule.panels[0].height - 90")
    move(browser, *spot(browser, 0.5, down))
    tip = text(browser, "tip")
    assert "in memory" in tip
    assert "saved" in tip
    assert "made by Fe" in tip
    assert "Bottleneck" in tip  # the stage's own name
    rows = browser.run("[...document.querySelectorAll('#residents tr')].map(row => row.innerText)")
    assert rows
    assert any(re.search(r"\tB\d+ of .* at [0-9.]+ ms", row) for row in rows)
    # The heading counts as many values as there are of that kind.
    index = browser.run("schedule.residents(schedule.memories[0], schedule.cursor.time, schedule.cursor.kind).length")
    assert f"saved: {index} values" in text(browser, "when")
    # A step of the processor.
    move(browser, *spot(browser, 0.99, browser.run("schedule.rowsTop + 8")))
    assert text(browser, "tip").startswith("B1 of 0:")
    assert "backward on processor" in text(browser, "tip")
    assert "frees" in text(browser, "tip")
    browser.mouse("mouseMoved", 5, 5)
    browser.settle()
    assert browser.run("document.getElementById('tip').hidden")
    assert result.report.ok


def test_the_table_has_the_peak_before_anybody_points(opened, pages):
    for name in ("chain", "offload", "pipeline"):
        browser = opened(name)
        heading = text(browser, "when")
        memory = browser.run("schedule.home.name")
        assert heading.startswith(f"At the peak of {memory}, ")
        assert browser.run("schedule.home.cause") in heading
        assert browser.run("document.querySelectorAll('#residents tr').length") >= 1
        fullest = max(pages[1][name].report.peaks.items(), key=lambda item: item[1].size)[1].size
        assert name == "offload" or browser.run("schedule.home.peak") == fullest
        # Back to it after pointing elsewhere.
        move(browser, *spot(browser, 0.1, browser.run("schedule.panels[0].top + 40")))
        assert text(browser, "when") != heading
        browser.mouse("mouseMoved", 5, 5)
        browser.settle()
        assert text(browser, "when") == heading


def test_lifetimes_and_colours_of_a_task_graph(opened):
    browser = opened("offload")
    count = browser.run("schedule.lives().length")
    assert count >= 1
    # Each is there at the peak, and waits for a step that reads it there.
    assert browser.run(
        """schedule.lives().every(k => {
        const {begin, end, last} = schedule.stays, now = schedule.peakTime(schedule.home);
        return begin[k] <= now && end[k] > now && (last(k) < 0 || schedule.columns.start[last(k)] <= end[k]); })"""
    )
    high = browser.run("schedule.height")
    browser.press("l")
    assert browser.run("schedule.height") < high
    assert browser.run("schedule.by") == "group"
    browser.press("c")
    assert browser.run("schedule.by") == "kind"
    assert browser.run("document.querySelector('[data-by=group]').hidden")
    total = "schedule.memories[0].bytes.reduce((sum, bytes) => sum + bytes[3], 0)"
    kinds = browser.run(total)
    browser.press("c")
    assert browser.run(total) == kinds


def test_lifetimes_are_sorted_by_size_and_their_names_differ(opened):
    browser = opened("chain")
    browser.press("l")
    sizes = browser.run("schedule.lives().map(k => schedule.columns.size[schedule.columns.value[k]])")
    assert len(sizes) > 2
    assert sizes == sorted(sizes, reverse=True)
    names = ["x", *(f"dense{k}_{k + 1}.1.conv" for k in range(5)), "d.dense3_24.1.relu", "d.dense3_24.1.norm"]
    shown = browser.run(f"shortenedApart({names})")
    assert len(set(shown)) == len(names)
    assert all(len(name) <= 13 for name in shown)
    assert shown[0] == "x"


def test_values_of_one_kind_and_micro_batch_share_a_row(opened):
    browser = opened("pipeline")
    count, groups = browser.run(
        """(() => { const memory = schedule.home, {size, value} = schedule.columns;
        const found = schedule.residents(memory, schedule.peakTime(memory));
        const told = k => [schedule.values.at(value[k]), size[value[k]]];
        const {groups, alone} = schedule.together(found);
        return [found.length, [...groups, ...alone.map(k => [k])].map(group => group.map(told))]; })()"""
    )
    assert sum(map(len, groups)) == count > len(groups)
    assert all(len({name.partition(".")[2] for name, _ in group}) == 1 for group in groups)
    table = browser.run(
        "[...document.querySelectorAll('#residents tr')].map(row => [...row.cells].map(cell => cell.innerText))"
    )
    largest = max(groups, key=lambda group: sum(size for _, size in group))
    assert table[0][0].endswith(f", micro-batch {largest[0][0].partition('.')[2]}, {len(largest)} values")
    assert table[0][1] == f"{sum(size for _, size in largest):,}"
    assert sum(int(row[1].replace(",", "")) for row in table) == browser.run("schedule.home.peak")


def test_devices_stand_above_their_memories(opened):
    browser = opened("pipeline")
    assert browser.run("schedule.rows.every(row => row.top < schedule.panels[0].top)")
    assert browser.run("schedule.panels.length") == 4
    # The tip names the micro-batch.
    move(browser, *spot(browser, 0.001, browser.run("schedule.rowsTop + 8")))
    assert "micro-batch 0: forward" in text(browser, "tip")


def test_many_devices_show_a_window_and_an_overview(opened):
    browser = opened("devices")
    assert browser.run("[schedule.devices.length, ...schedule.window]") == [20, 0, 8]
    assert browser.run("schedule.panels.map(panel => panel.memory.name)") == [f"gpu{k}" for k in range(8)]
    browser.press("PageDown")
    assert browser.run("schedule.rows[0].name") == "gpu8"
    browser.press("PageDown")
    browser.press("PageDown")
    assert browser.run("schedule.window") == [12, 8]
    # A click into the overview goes to the devices there; the peak to the fullest.
    x, _ = spot(browser, 0.5, 0)
    down = browser.run("schedule.overviewTop + 10 + schedule.canvas.getBoundingClientRect().top")
    browser.mouse("mousePressed", x, down)
    browser.mouse("mouseMoved", x + 1, down)
    browser.mouse("mouseReleased", x + 1, down)
    browser.settle()
    assert browser.run("schedule.window[0]") == 0
    browser.press("PageDown")
    browser.press("p")
    assert browser.run("schedule.panels.some(panel => panel.memory === schedule.home)")


def test_residents_add_up_with_the_bands(opened):
    browser = opened("chain")
    for share in (0.003, 0.051, 0.302, 0.5, 0.71, 0.953):
        found = browser.run(
            f"""(() => {{ const time = {share} * schedule.span, all = [];
            for (const memory of schedule.memories) {{
              const k = upper(memory.time, time) - 1, sizes = schedule.columns.size;
              const sum = schedule.residents(memory, time).reduce((a, s) => a + sizes[schedule.columns.value[s]], 0);
              const work = memory.kinds.findIndex(kind => schedule.head.kinds[kind].label === 'workspace');
              all.push([sum + memory.bytes[work][k], memory.total[k]]);
            }} return all; }})()"""
        )
        assert all(values == total > 0 for values, total in found)


def test_wheel_drag_and_keys_zoom(opened):
    browser = opened("chain")
    x, y = spot(browser, 0.5, 100)
    before = browser.run("schedule.timeAt(600)")
    browser.mouse("mouseMoved", x, y)
    browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-600)
    browser.settle()
    low, high = browser.run("schedule.view.map(time => time / schedule.span)")
    assert 0 < low < 0.5 < high < 1
    assert high - low == pytest.approx(1.0018**-400)
    assert browser.run("schedule.timeAt(600)") != before
    # What is under the pointer stays there.
    assert browser.run(f"schedule.timeAt({x} - schedule.canvas.getBoundingClientRect().left) / schedule.span") == (
        pytest.approx(0.5, abs=0.002)
    )
    browser.mouse("mousePressed", x, y)
    browser.mouse("mouseMoved", x - 80, y)
    browser.mouse("mouseReleased", x - 80, y)
    browser.settle()
    assert browser.run("schedule.view[0] / schedule.span") > low
    browser.press("0")
    assert browser.run("schedule.view.map(time => time / schedule.span)") == [0, 1]
    browser.press("+")
    browser.press("ArrowRight")
    assert browser.run("(schedule.view[1] - schedule.view[0]) / schedule.span") == pytest.approx(0.5)
    browser.press("Home")
    browser.press("p")
    browser.settle()
    peak = browser.run("schedule.cursor.time")
    memory = "schedule.memories[0]"
    assert peak == browser.run(f"{memory}.time[{memory}.largest.of(0, {memory}.total.length)]")
    assert "1023 MiB in memory" in text(browser, "tip")
    browser.press(".")
    assert browser.run("schedule.cursor.time") > peak
    browser.press("Escape")
    assert browser.run("schedule.cursor === null && document.getElementById('tip').hidden")


def test_the_filter_finds_names(opened):
    browser = opened("chain")
    browser.press("/")
    assert browser.run("document.activeElement.id") == "filter"
    browser.ask("Input.insertText", text="Fe9")
    browser.wait("schedule.matches")
    steps = browser.run("[...schedule.columns.item.keys()].filter(k => schedule.stepName(k).startsWith('Fe9 ')).length")
    assert text(browser, "found").startswith(f"{steps} steps")
    browser.press("Enter")
    assert browser.run("schedule.cursor.time") == browser.run(
        "schedule.columns.start[[...schedule.columns.item.keys()].find(k => schedule.stepName(k).startsWith('Fe9 '))]"
    )
    # What does not match is faded.
    other = browser.run("[...schedule.columns.item.keys()].find(k => schedule.stepName(k).startsWith('F5 '))")
    middle = f"(schedule.columns.start[{other}] + schedule.columns.length[{other}] / 4)"
    place = browser.run(f"schedule.x({middle}) + schedule.canvas.getBoundingClientRect().left")
    down = browser.run("schedule.rowsTop + 5 + schedule.canvas.getBoundingClientRect().top")
    faded = pixel(browser, place, down)
    browser.press("Escape")
    browser.settle()
    browser.wait("!schedule.matches")
    browser.settle()
    assert pixel(browser, place, down) != faded
    assert text(browser, "found") == ""


def test_values_that_match_have_a_line(opened):
    browser = opened("chain")
    browser.run("schedule.filter('s9')")
    most = browser.run("Math.max(...schedule.matches.lines.get(schedule.memories[0]).total)")
    assert most == browser.run(
        "schedule.columns.size[[...Array(schedule.values.count).keys()].find(k => schedule.values.at(k) === 's9')]"
    )
    browser.run("schedule.filter('')")


def test_light_dark_and_narrow(opened):
    browser = opened("pipeline")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = browser.run(paper)
    kind = browser.run("schedule.colours.kinds[0]")
    browser.appear(dark=True)
    browser.wait(f"{paper} !== '{light}'")
    browser.settle()
    assert browser.run("schedule.colours.kinds[0]") != kind
    browser.press("d")  # the page's own choice wins
    assert browser.run(paper) == light
    for width in (500, 360):
        browser.resize(width, 900)
        browser.settle()
        browser.settle()
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run("schedule.width") <= width


def test_a_kind_is_singled_out(opened):
    browser = opened("chain")
    browser.run("document.querySelector('button[data-kind=\"1\"]').click()")
    assert browser.run("schedule.only") == 1
    assert browser.run("[...document.querySelectorAll('[aria-pressed=true]')].length") == 1
    browser.run("document.querySelector('button[data-kind=\"1\"]').click()")
    assert browser.run("schedule.only === undefined")


def test_the_peak_is_never_lost(opened):
    """The highest of many points in a pixel is drawn at any position: a step of length zero sets the peak."""
    browser = opened("long")
    peak = browser.run("schedule.memories[0].peak")
    for width in (280, 500, 1280):
        browser.resize(width, 900)
        browser.settle()
        shown = browser.run(
            "Math.max(...schedule.points(schedule.memories[0]).index.map(k => schedule.memories[0].total[k]))"
        )
        assert shown == peak


def test_levels_of_detail_find_what_a_search_finds(opened):
    browser = opened("chain")
    wrong = browser.run(
        """(() => {
        let seed = 7, wrong = 0;
        const draw = most => { seed = (seed * 48271) % 2147483647; return seed % most; };
        for (let round = 0; round < 60; round++) {
          const count = 1 + draw(5000), values = Float64Array.from({length: count}, () => draw(50));
          const tree = new Largest(values, 2 + draw(9)), low = draw(count), high = low + 1 + draw(count - low);
          let best = low;
          for (let k = low; k < high; k++) if (values[k] > values[best]) best = k;
          if (tree.of(low, high) !== best) wrong++;
          const begin = Float64Array.from({length: count}, () => draw(1000)).sort();
          const end = begin.map(time => time + draw(100)), cover = new Cover(begin, end), time = draw(1100);
          const found = [], there = [];
          cover.at(time, k => found.push(k));
          for (let k = 0; k < count; k++) if (begin[k] <= time && end[k] > time) there.push(k);
          if (found.join() !== there.join()) wrong++;
        }
        return wrong; })()"""
    )
    assert wrong == 0


def test_figures_are_written_as_in_tables(opened):
    from remat.units import Units, format_budget, format_size, format_time, sizes_shown_as

    browser = opened("chain")
    for size in (0, 1, 1023, 1024, 1536, 123_456_789, 2**40 + 2**38):
        assert browser.run(f"sizeText({size}, {{memory: 'B', base: 1024}})") == format_size(size)
        with sizes_shown_as(["1GB"]):
            assert browser.run(f"sizeText({size}, {{memory: 'B', base: 1000}})") == format_size(size)
    drawn = random.Random(1)
    for size in (0, 999, 1001, 123_456_789, 2**40, 2**40 + 1, *(int(10 ** drawn.uniform(0, 15)) for _ in range(40))):
        assert browser.run(f"budgetText({size}, {{memory: 'B', base: 1024}})") == format_budget(size)
        with sizes_shown_as(["1GB"]):
            assert browser.run(f"budgetText({size}, {{memory: 'B', base: 1000}})") == format_budget(size)
    for time in (0, 1, 12.345678, 1000, 0.25, 98765.4321):
        for unit in ("s", "ms", "us", "ns", "unit"):
            want = format_time(time, Units(time=unit, memory="B")).replace("us", "µs")
            assert browser.run(f"timeText({time}, '{unit}')") == want

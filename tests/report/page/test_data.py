"""Columns that are packed come back; and a page has what it needs, and nothing from elsewhere."""

import base64
import re
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.errors import OptionError
from remat.generate import generate
from remat.report.page import page, write_page
from remat.report.page.data import Packed, pack
from remat.report.plot.schedule import plot
from remat.report.views.forward_backward import passes_of
from remat.report.views.kinds import Kind, kind_labels
from remat.schedule.steps import StepKind
from remat.units import format_percent, format_time
from tests.report.results import OFFLOAD, chain_result, long_result, offload_result, result_of


def unpacked(head, data):
    """Read columns back, as the page does."""
    whole, found = zlib.decompress(base64.b64decode(data)), {}
    for entry in head["columns"]:
        length = entry.get("bytes", entry.get("count", 0) * entry.get("width", 0))
        part, whole = whole[:length], whole[length:]
        if "bytes" in entry:
            found[entry["name"]] = part.decode().split("\n")
            continue
        planes = np.frombuffer(part, dtype=np.uint8).reshape(entry["width"], entry["count"])
        unsigned = sum(
            (plane.astype(np.int64) << (8 * k) for k, plane in enumerate(planes)), np.zeros(entry["count"], int)
        )
        numbers = (unsigned >> 1) ^ -(unsigned & 1)
        found[entry["name"]] = np.cumsum(numbers) if entry["differences"] else numbers
    assert whole == b""
    return found


@settings(max_examples=60, derandomize=True, database=None, deadline=None)
@given(st.lists(st.integers(-(2**51), 2**51), max_size=30), st.booleans())
def test_columns_come_back(numbers, differences):
    packed = Packed()
    packed.column("one", np.array(numbers, dtype=np.int64), differences=differences)
    packed.texts("two", ["a", "é漢", ""])
    found = unpacked({"columns": packed.entries}, packed.encoded())
    assert found["one"].tolist() == numbers
    assert found["two"] == ["a", "é漢", ""]


@pytest.mark.parametrize("made", [chain_result, offload_result])
def test_a_page_has_the_schedule(made):
    result = made()
    head, data = pack(result)
    found = unpacked(head, data)
    report, steps = result.report, result.columns
    start = found["start"] * head["tick"]
    assert start == pytest.approx(report.start.astype(float), abs=1e-9 * float(report.makespan))
    assert start + found["length"] * head["tick"] == pytest.approx(report.end.astype(float))
    assert found["item"].tolist() == steps.item.tolist()
    for memory, listed in zip(result.machine.memories, head["memories"], strict=True):
        assert listed["name"] == memory.name
        assert listed["peak"] == report.peaks[memory.name].size == sum(listed["at_peak"].values())
    served = [
        found["served"][row["first"] : row["stop"]].tolist() for row in head["rows"] if row["stop"] > row["first"]
    ]
    assert sum(map(len, served)) >= int((report.end > report.start).sum())
    assert all(np.all(np.diff(report.start[row]) >= 0) for row in served)
    # Each stay ends after it began, with the step that frees it.
    died = np.where(found["died"] % 2, -1, found["died"] // 2 + np.maximum(found["born"], 0))
    ends = np.where(died < 0, float(report.makespan), report.end[np.maximum(died, 0)])
    assert (ends >= np.where(found["born"] < 0, 0, report.start[np.maximum(found["born"], 0)])).all()


def test_task_graphs_have_groups_and_others_have_none():
    head, data = pack(offload_result())
    found = unpacked(head, data)
    labels, extra = head["groups"]["labels"], head["groups"]["extra"]
    assert len(found["group"]) == len(found["size"])
    assert found["group"].max() < extra
    for index, memory in enumerate(head["memories"]):
        grouped = sum(found[f"grouped {index} {row}"] for row in memory["groups"])
        kinds = sum(found[f"bytes {index} {kind}"] for kind in memory["kinds"])
        assert np.array_equal(grouped, kinds)
        assert sum(memory["groups_at_peak"].values()) == memory["peak"]
    assert [labels[extra + row] for row in range(3)] == ["static memory", "workspace", "being replaced"]
    assert pack(chain_result())[0]["groups"] is None


def test_a_pipeline_has_its_operations_and_who_sends():
    result = remat.solve(remat.example("bert_large_two_nodes"), algorithm="v-min", budget="2600MiB")
    head, data = pack(result)
    found, passes = unpacked(head, data), passes_of(result)
    assert head["passes"] == len(passes.device) == len(found["pass device"])
    order = np.lexsort((passes.half, passes.start, passes.device))
    assert found["pass batch"].tolist() == passes.batch[order].tolist()
    assert found["pass start"] * head["tick"] == pytest.approx(passes.start[order], abs=1e-9)
    for row in head["rows"]:
        sender = row["name"].partition("->")[0]
        assert row.get("kind") != "channel" or head["rows"][row["sender"]]["name"] == sender
    # The header names the device that is fullest, which is not the first one.
    assert head["memories"][head["fullest"]]["name"] == "gpu3"
    text = page(result)
    assert "fullest memory gpu3 2.285 GiB of 2.54 GiB (89.9 %)" in text
    for label in ("forward", "input gradient", "weight gradient", "transfers", "idle"):
        assert f">{label}</span>" in text
    assert "saving forward" not in text.partition("<figure>")[0]
    # A copy that sets a peak is named as runs are.
    step = result.report.peaks["gpu0"].step
    value = result.graph.values[int(result.columns.item[step])]
    layer, batch = value.removeprefix("y").split(".")
    assert head["memories"][0]["cause"] == f"copy of y of layer {layer}, micro-batch {batch} ({value}) to gpu0"


def of_pipeline():
    return remat.solve(remat.example("uniform_p4"), algorithm="1f1b")


def of_adjoint():
    return remat.solve(remat.example("seismic_ram_disk"), algorithm="h-revolve")


@pytest.mark.parametrize("made", [chain_result, offload_result, of_pipeline, of_adjoint, lambda: long_result(60)])
def test_a_page_says_when_each_peak_is_for_the_first_time_and_how_often(made):
    result = made()
    head, _ = pack(result)
    text = page(result)
    for memory in head["memories"]:
        peak, profile = result.report.peaks[memory["name"]], result.report.profiles[memory["name"]]
        began = 0 if peak.step is None else float(result.report.start[peak.step])
        assert memory["at"] * head["tick"] == pytest.approx(began, abs=1e-9 * float(result.makespan))
        begins, until, there = [], -1.0, False
        for time, size in zip(profile.time.tolist(), profile.size.tolist(), strict=True):
            if size == peak.size and not there and time > until * (1 + 1e-9):  # a dip of no length is none
                begins.append(time)
            if there:
                until = time
            there = size == peak.size
        assert memory["moments"] == len(begins)
        when = f" at {format_time(began, result.units)}, during {memory['cause']}"
        more = f" (the first of {len(begins):,} moments)" if len(begins) > 1 else ""
        assert not peak.size or f"{when}{more}</b>" in text
        if memory is head["memories"][head["fullest"]]:
            assert f"{when}{more} · " in text


def test_a_page_says_how_much_each_device_recomputes():
    """Recounted from the runs: a forward that ran before runs again."""
    result = remat.solve(remat.example("bert_large_two_nodes"), algorithm="adapipe", budget="2300MiB")
    steps, report, text = result.columns, result.report, page(result)
    seen, again, time = set(), {}, {}
    for step in np.argsort(report.start, kind="stable").tolist():
        match = re.fullmatch(r"Fe?(\d+)\.(\d+)", result.graph.tasks[int(steps.item[step])])
        if steps.kind[step] != StepKind.RUN or not match:
            continue
        device = result.machine.processors[steps.on[step].tolist()[0]].name
        if match.groups() in seen:
            again.setdefault(device, set()).add(match[2])
            time[device] = time.get(device, 0.0) + float(report.end[step] - report.start[step])
        seen.add(match.groups())
    assert again
    batches = len({batch for _, batch in seen})
    for processor in result.machine.processors:
        name = processor.name
        spent = f" ({format_time(time[name], result.units)})" if name in time else ""
        idle = format_percent(float(report.idle[name]) / float(report.makespan))
        assert (
            f"<li>{name}: recomputes for {len(again.get(name, ()))} of {batches} micro-batches{spent}, idle {idle}</li>"
            in text
        )


def test_a_page_of_a_pipeline_has_its_speed_up():
    result = remat.solve(remat.example("uniform_p4_m8"), algorithm="zb-h1")
    assert "makespan 54 · speed-up 3.56 on 4 devices · feasible" in page(result)


def test_the_only_kind_at_a_peak_has_the_figure_of_the_peak():
    result = remat.solve(remat.tree(parent=[-1], output_size=[1_000_001]), budget="2MB")
    assert "memory: 976.6 KiB of 1.908 MiB" in page(result)
    assert "976.6 KiB (100 %)" in page(result)


def test_a_page_has_the_addresses():
    made = chain_result()
    assert [memory["addresses"] for memory in pack(made)[0]["memories"]] == [None] * len(made.machine.memories)
    made = made.with_addresses(remat.layout(made))
    head, data = pack(made)
    found, table = unpacked(head, data), made.addresses
    assert head["memories"][0]["addresses"] == {"size": table.arenas[0].size, "blocked": []}
    rows = zip(*(found[f"{name} 0"].tolist() for name in ("owner", "first", "last", "low", "high")), strict=True)
    steps = len(made.columns)
    columns = (column.tolist() for column in table.columns)
    assert sorted(rows) == sorted(
        (2 * task + 1 if value < 0 else 2 * value, first, last if last < steps else -1, offset, offset + size)
        for _, value, task, first, last, offset, size in zip(*columns, strict=True)
    )


def test_whole_times_are_exact():
    head, data = pack(long_result(100))
    assert head["tick"] == 1.0
    assert unpacked(head, data)["start"].tolist() == long_result(100).report.start.tolist()


def test_what_a_page_says():
    result = chain_result()
    text = page(result)
    assert "<h1>three stages</h1>" in text
    for said in ("rotor", f"makespan {result.makespan} ms", "at the peak", "checkpoints", "lower bound"):
        assert said.lower() in text.lower()
    labels = kind_labels(result.graph)
    assert all(labels[Kind(int(kind))] in text for kind in pack(result)[0]["memories"][0]["at_peak"])


def test_a_page_needs_nothing_else_and_is_small():
    text = page(chain_result())
    assert not re.search(r"https?://|//cdn|@import|src=|<link(?! rel=\"icon\" href=\"data:,\")", text)
    assert len(text) < 80_000


def test_names_are_escaped():
    task = '</script><script>alert("1")</script>'
    steps = [{"run": task}, {"run": "b", "on": ["gpu0"], "drop": ["u"]}]
    tasks = [OFFLOAD["tasks"][0] | {"id": task}, *OFFLOAD["tasks"][1:]]
    text = page(result_of(OFFLOAD | {"tasks": tasks}, steps, name=task))
    assert text.count("<script>") == 1
    assert "alert(" not in text.partition('<script type="text/plain"')[2]


def test_equal_results_give_equal_pages(tmp_path):
    result = chain_result()
    write_page(result, tmp_path / "one.html")
    plot(result, tmp_path / "two.HTML")
    result.plot(tmp_path / "three.html")
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.HTML").read_bytes()
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "three.html").read_bytes()


def test_what_has_no_page(tmp_path):
    with pytest.raises(OptionError, match="no schedule to plot"):
        page(replace(chain_result(), report=None, columns=None))
    with pytest.raises(OptionError, match=r"an \.html page shows memory and resources over time, and has no views"):
        plot(chain_result(), tmp_path / "page.html", view="values")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_schedule_is_packed():
    optional = [{"id": "t", "time": 1, "writes": [], "required": False}]
    head, _ = pack(result_of({"schema": "remat.instance/1", "kind": "dag", "tasks": optional}, []))
    assert head["memories"][0]["peak"] == 0
    assert head["rows"][0]["stop"] == 0


def test_pipelines_have_a_row_for_each_device():
    head, _ = pack(remat.solve(remat.example("uniform_p4"), algorithm="1f1b"))
    assert [row["name"] for row in head["rows"]][:4] == ["gpu0", "gpu1", "gpu2", "gpu3"]
    assert [memory["peak"] for memory in head["memories"]] == [16, 12, 8, 4]


def test_streams_say_what_their_bound_is_of():
    tasks = [{"id": "a", "time": 3, "size": 5}, {"id": "b", "time": 2, "reads": ["a"], "writes": []}]
    document = {"schema": "remat.instance/3", "kind": "dag", "tasks": tasks, "stream": 4}
    result = remat.solve(document, algorithm="placement-replicated")
    assert (result.makespan, result.report.makespan) == (5, 20)
    assert "· makespan 20 s · 5 s per sample · optimal · lower bound 5 s ·" in page(result)


def test_a_page_says_within_what_a_schedule_is_optimal_and_names_no_recomputation_without_any():
    loop = remat.solve(generate("adjoint", "uniform", steps=12, storage="ram:slots=3"), algorithm="revolve")
    assert loop.status == "feasible"
    assert f"feasible, optimal within {loop.optimal_within}" in page(loop)
    step = remat.pipeline(
        forward_time=[1, 1], backward_time=2, output_size=1, devices=2, micro_batches=3, time_unit="unit"
    )
    text = page(remat.solve(step, algorithm="1f1b"))
    assert "<li>gpu0: idle " in text
    assert "recomputes for" not in text

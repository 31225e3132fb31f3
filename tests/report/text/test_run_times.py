"""The lines on time: shares of the processors that recompute, repeated gathers, overheads, and what limits a step."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

import remat
from remat.generate import generate
from remat.plugin.proposal import Termination
from remat.report.page.build import page
from remat.report.text.run_times import overhead_line
from remat.report.text.schedule_view import schedule_view
from remat.report.text.summary import figures, lines_of
from remat.report.text.verdict import verdict
from remat.solving.reference_words import WITHOUT_RECOMPUTATION, reference_words
from remat.solving.result import Result
from remat.solving.verifying import examine
from remat.units import format_time
from tests.algorithms.offload.trained import chain, stage

NETWORK = {"source": "device", "target": "device", "bandwidth": 2, "channel": "network"}


def of_ranks(*stages: dict[str, Any], ranks: int = 2, zero: int = 3) -> dict[str, Any]:
    """Return a chain whose parameters and states are on the device of one of several ranks."""
    document = chain(*stages) | {"schema": "remat.instance/3", "optimizer_memory": "device"}
    document["machine"] = document["machine"] | {"links": [*document["machine"]["links"], NETWORK]}
    return document | {"sharding": {"data": ranks, "zero": zero}}


def lines(result: Result) -> dict[str, list[str]]:
    """Return the texts of each label of the summary."""
    found: dict[str, list[str]] = {}
    label = ""
    for name, text in lines_of(result):
        label = name or label
        found.setdefault(label, []).append(text)
    return found


def runs(result: Result, letters: str) -> list[tuple[str, float]]:
    """Return the tasks with these letters as they run, and the times of their runs."""
    steps = result.timeline()
    listed = zip(steps["kind"], steps["name"], steps["end"] - steps["start"], strict=True)
    return [(name, time) for kind, name, time in listed if kind == "run" and re.fullmatch(f"({letters})[0-9]*", name)]


@pytest.fixture(scope="module")
def sharded() -> Result:
    """Three stages of two ranks, whose parameters are gathered for the forward and for the backward."""
    document = of_ranks(stage(), stage(), stage())
    document["machine"]["processors"][1]["speed"] = 0.001
    return remat.solve(document, algorithm="weight-offload", budget=70)


def test_repeated_gathers_are_no_recomputation(sharded: Result) -> None:
    gathers = runs(sharded, "P")
    again = len(gathers) - len({name for name, _ in gathers})
    assert again > 0
    first: set[str] = set()
    repeated = sum(time for name, time in gathers if name in first or first.add(name))  # type: ignore[func-returns-value]
    found = lines(sharded)
    assert found["repeated gathers"] == [f"{repeated:g}, {again} of them"]
    once = sum(time for _, time in runs(sharded, "F|Fe|B|U|loss")) - (2 + 4 + 1 / 2) * 3
    assert found["recompute time"][0].split(",")[0] == f"{once:g}"
    shown = verdict(sharded.report)  # type: ignore[arg-type]
    assert f"repeated gathers  {repeated:g}, {again} of them" in shown
    assert f"repeated gathers {repeated:g}, {again} of them" in page(sharded)


@pytest.mark.parametrize("change", [{"run": "nothing"}, {"on": ["nobody"]}])
def test_schedules_that_break_rules_have_a_verdict(change: dict[str, Any]) -> None:
    document = of_ranks(stage(), stage(), stage())
    schedule = remat.solve(document, algorithm="weight-offload", budget=70).to_dict()
    (step, *_) = (step for step in reversed(schedule["steps"]) if "run" in step)
    step |= change
    report = remat.verify(document, schedule)
    assert not report.ok
    assert "recompute time" in verdict(report)


def test_exchanges_overlap_in_the_reference_of_an_overhead(sharded: Result) -> None:
    """Without recomputation, the ranks exchange gradients and parameters while they compute."""
    every = dict(runs(sharded, "P|A"))
    computing, exchanging = (2 + 4 + 1 / 2) * 3, sum(every.values())
    assert sharded.reference_time == pytest.approx(max(computing, exchanging))
    assert sharded.makespan is not None
    assert sharded.makespan >= sharded.reference_time
    assert sharded.overhead == pytest.approx(sharded.makespan / max(computing, exchanging) - 1)
    assert figures(sharded)["reference_time"] == sharded.reference_time
    assert "speed-up" not in lines(sharded)
    (text,) = lines(sharded)["overhead"]
    assert text.startswith("+")
    assert text.endswith("without recomputation, exchanges overlapped")
    assert f"overhead {text}" in page(sharded)


def test_exchanges_that_take_longer_than_the_computation_are_named() -> None:
    result = remat.solve(of_ranks(stage(parameters=40, optimizer=0), ranks=4), algorithm="weight-offload")
    (text,) = lines(result)["overhead"]
    assert text.endswith("that the exchanges between ranks take")
    assert result.overhead is not None
    assert result.overhead >= 0


def test_figures_of_ranks_are_those_of_one(sharded: Result) -> None:
    found = lines(sharded)
    assert found["ranks"] == ["2, each with its own part of the batch; times and bytes are those of one rank"]
    assert all(" per rank, set by" in text for text in found["peak memory"])
    alone = lines(remat.solve(chain(stage()), algorithm="weight-offload"))
    assert "ranks" not in alone
    assert not any("per rank" in text for text in alone["peak memory"])


def test_a_processor_that_updates_gives_no_speed_up() -> None:
    """A host that updates saves the device some time; the comparison remains one with that device."""
    document = chain(stage(update=9), stage(update=9), stage(update=9))
    result = remat.solve(document, algorithm="weight-offload")
    assert result.report is not None
    assert result.report.busy["cpu"]
    assert result.overhead is not None
    assert result.overhead < 0
    found = lines(result)
    assert "speed-up" not in found
    (text,) = found["overhead"]
    assert text.startswith("-")
    assert text.endswith("over the 45 on gpu alone without recomputation")


def test_several_processors_that_compute_give_a_speed_up() -> None:
    graph = {
        "schema": "remat.instance/1",
        "kind": "dag",
        "units": {"time": "unit", "memory": "unit"},
        "machine": {"memories": [{"name": "m"}], "processors": [{"name": "p", "memory": "m", "count": 2}]},
        "tasks": [{"id": name, "time": 2, "size": 1} for name in "abcd"],
        "outputs": list("abcd"),
    }
    assert lines(remat.solve(graph))["speed-up"] == ["2.00 on 2 processors, over 8 on one without recomputation"]


def test_the_share_of_recomputation_is_that_of_the_processor_that_recomputes() -> None:
    document = chain(*[stage(saved=9, update=1)] * 4)
    result = remat.solve(document, algorithm="weight-offload", budget=46)
    (text,) = lines(result)["recompute time"]
    assert result.report is not None
    assert result.report.busy["cpu"]
    assert result.recompute_time
    gpu = sum(time for _, time in runs(result, "F|Fe|B|loss"))
    steps = result.timeline()
    gpu += sum(
        end - start
        for name, start, end, on in zip(steps["name"], steps["start"], steps["end"], steps["on"], strict=True)
        if name.startswith("U") and "gpu" in str(on)
    )
    assert text == f"{result.recompute_time:g}, {100 * result.recompute_time / gpu:.3g} % of the run time of gpu"
    assert text in page(result)


def test_what_is_not_used_is_left_out(sharded: Result) -> None:
    assert sharded.report is not None
    assert not sharded.report.busy["cpu"]
    found = lines(sharded)
    assert [text.split(":")[0] for text in found["peak memory"]] == ["device"]
    assert [text.split(":")[0] for text in found["transferred"]] == ["device->device"]
    assert [text.split(":")[0] for text in found["idle time"]] == ["gpu", "network"]
    assert re.search(r"· idle gpu [0-9.]+ % ·", page(sharded))
    shown = verdict(sharded.report)
    assert not re.search(r"host|cpu|d2h|h2d", shown)


def test_a_link_that_is_busy_nearly_all_the_time_is_named() -> None:
    slow = remat.solve(of_ranks(stage(parameters=40, optimizer=0), ranks=4), algorithm="weight-offload")
    assert slow.report is not None
    busy, whole = slow.report.busy["network"], slow.report.makespan
    assert busy > 0.8 * whole
    assert lines(slow)["limited by"] == [
        f"network, which is busy for {busy:g} of {whole:g} ({100 * busy / whole:.3g} %)"
    ]
    assert "limited by network, which is busy for " in page(slow)
    quick = remat.solve(of_ranks(stage(forward=90, backward=90)), algorithm="weight-offload")
    assert "limited by" not in lines(quick)


def test_a_lower_bound_names_what_it_disregards() -> None:
    result = remat.solve(chain(*[stage()] * 3), algorithm="weight-offload")
    assert result.gap
    (text,) = lines(result)["lower bound"]
    assert text.endswith("; the bound shares the work among all processors and ignores copies between memories")
    reached = remat.solve(chain(stage(), optimizer_memory="device"), algorithm="weight-offload")
    assert lines(reached)["lower bound"][0].endswith(", reached")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (27.0, "an algorithm used up its share of the default 60 s: raise time_limit"),
        (58.0, "default time limit, 60 s: time_limit"),
    ],
)
def test_a_share_of_the_time_limit_is_not_the_whole(seconds: float, shown: str) -> None:
    plain = remat.chain(forward_time=[1, 1], backward_time=1, output_size=1, input_size=1)
    result = remat.solve(plain)
    ended = replace(result, termination=Termination.TIME_LIMIT, solve_seconds=seconds)
    assert lines(ended)["status"][0].endswith(f"({shown})")


def test_lines_keep_their_order(sharded: Result) -> None:
    labels = [name for name, _ in lines_of(sharded) if name]
    wanted = ["status", "ranks", "decisions", "makespan", "overhead", "recompute time", "repeated gathers"]
    places = [labels.index(name) for name in wanted]
    assert all(one < other for one, other in pairwise(places))


RANKS = {"data": 4, "zero": 3, "parameters": "device", "states": "device"}
REFERENCES = {
    "plain": ({}, "without recomputation"),
    "ranks": (RANKS | {"network": 10**12}, "without recomputation, exchanges overlapped"),
    "slow network": (RANKS, "that the exchanges between ranks take"),
}


@pytest.mark.parametrize(("options", "what"), REFERENCES.values(), ids=REFERENCES)
def test_solve_and_show_name_one_reference_of_overheads(options: dict[str, Any], what: str) -> None:
    instance = remat.load(generate("chain", "transformer", layers=2, sequence=64, **options))
    result = remat.solve(instance, time_limit="2s")
    assert result.report is not None
    name, text = overhead_line(result, result.report)
    assert name == "overhead"
    assert text.endswith(f" over the {format_time(result.reference_time, result.units)} {what}")
    shown = " ".join(schedule_view(examine(instance, result.to_dict())).split())
    assert f" overhead {text} " in shown
    facts = remat.show(instance)
    assert facts.reference_time == result.reference_time
    assert reference_words(facts) == f"the {format_time(result.reference_time, result.units)} {what}"
    said = f"overheads are over the {format_time(result.reference_time, result.units)} {what}"
    assert (
        (said in " ".join(repr(facts).split()))
        == (result.reference_time != result.no_recompute_time)
        == (what != WITHOUT_RECOMPUTATION)
    )

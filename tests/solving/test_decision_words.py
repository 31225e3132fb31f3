"""Sentences on decisions agree with the decisions, and these with the steps, recounted by an oracle."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import remat
from remat.solving.decisions.groups import groups_of
from remat.solving.decisions.phrases import ranges
from remat.solving.decisions.words import NOTHING, decision_words, module_words
from remat.solving.result import Result
from remat.solving.verifying import examine
from remat.testing import strategies
from remat.units import Units
from tests.oracles import deciding

QUICK = settings(max_examples=10, deadline=None, phases=[Phase.explicit, Phase.generate])
ROLES = {
    "outputs": "x",
    "states": "x",
    "saved values": "s",
    "output gradients": "y",
    "parameters": "w",
    "gradients": "g",
    "optimizer states": "o",
}


def numbers(text: str) -> set[int]:
    """Read ``2-14, 17 and 20-22``."""
    found = set()
    for part in re.split(r", | and ", text):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def told(result: Result) -> list[str]:
    return [*decision_words(result, all_of_them=True)]


def recomputed_stages(result: Result) -> set[int]:
    """Stages whose forwards run more than once, by the names of the tasks."""
    found: dict[int, int] = defaultdict(int)
    for task, count in deciding.runs_of_tasks(result).items():
        if stage := re.fullmatch(r"Fe?([0-9]+)(?:\.[0-9]+)?", task):
            found[int(stage[1])] += count
    return {stage for stage, count in found.items() if count > 1}


def check_decisions(result: Result) -> None:
    """The decisions of values agree with the oracle."""
    runs, away = deciding.runs_of_values(result), deciding.waiting(result)
    waits: dict[str, set[str]] = defaultdict(set)
    for row in result.decisions:
        assert row.runs == runs[row.value]
        assert (row.decision == "recomputed") == (runs[row.value] > 1)
        for stay in row.offloaded:
            waits[stay.memory].add(row.value)
    assert dict(waits) == away
    check_periods(result)


def check_periods(result: Result) -> None:
    """The stays of values with bytes agree with the oracle, but for sums of gradients, which grow in place."""
    periods = deciding.periods(result)
    for row in result.decisions:
        if not row.size or re.fullmatch(r"a[0-9]+\.[0-9]+", row.value):
            continue
        stays = [(stay.memory, stay.start, stay.end) for stay in (*row.held, *row.offloaded)]
        assert sorted(stays) == sorted(periods[row.value])
        if row.decision == "kept":
            assert row.held


def check_rows(result: Result) -> None:
    """The rows of stages agree with the runs of their forwards and backwards, counted from the timeline."""
    steps = result.timeline()
    listed: dict[tuple[int, int | None], list[tuple[str, int, float, float]]] = defaultdict(list)
    for name, start, end in zip(steps["name"], steps["start"], steps["end"], strict=True):
        if name == "loss" and result.instance.kind == "adjoint":
            name = f"B{result.instance.length}"
        if one := re.fullmatch(r"(Fe?|B|W)([0-9]+)(?:\.([0-9]+))?", name):
            listed[int(one[2]) - 1, None if one[3] is None else int(one[3])].append((one[1][0], name, start, end))
    rows = result.stage_decisions
    assert len(rows) == len({(row.stage, row.micro_batch) for row in rows})
    assert {(layer, row.micro_batch) for row in rows for layer in row.layers} == set(listed)
    for row in rows:
        runs = [one for layer in row.layers for one in listed[layer, row.micro_batch]]
        assert (row.start, row.end) == (min(one[2] for one in runs), max(one[3] for one in runs))
        again = []
        for layer in row.layers:
            forwards = sorted((one[2:], one[1]) for one in listed[layer, row.micro_batch] if one[0] == "F")
            again += [(name, *times) for times, name in forwards[1:]]
            assert (layer in row.recomputed) == (len(forwards) > 1)
        assert sorted(again) == sorted((run.task, run.start, run.end) for run in row.recomputations)


def check_stages(result: Result) -> None:
    """Assert that the sentences on a chain or an adjoint name recomputed stages and stored states."""
    check_decisions(result)
    lines = told(result)
    again = {k for line in lines if (m := re.match(r"recompute (?:stages?|steps?) ([0-9, \-and]+?)(?:,? up| \()", line))
             for k in numbers(m[1])}  # fmt: skip
    assert again == recomputed_stages(result)
    away = deciding.waiting(result)
    waits: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        line = re.sub("the input and the outputs of stages? ", "the outputs of stages 0, ", line)
        line = re.sub(r"^offload the input to", "offload the outputs of stage 0 to", line)
        if m := re.match(
            r"(?:keep|offload|fetch|copy) the ([a-z ]+) of stages? ([0-9, \-and]+?) (?:\(.*?\) )?(?:in|to|from) (\S+)",
            line,
        ):
            if m[1] in ROLES:
                waits[m[3]] |= {f"{ROLES[m[1]]}{k}" for k in numbers(m[2])}
        elif m := re.match(r"(?:keep|checkpoint) ([0-9,]+) states? in (\w+).*: ([x0-9, \-and]+)$", line):
            assert not re.search(r"(?<![x0-9])[0-9]", m[3])  # states have names, as steps have numbers from 1
            named = numbers(m[3].replace("x", ""))
            waits[m[2]] |= {f"x{k}" for k in named}
            assert int(m[1].replace(",", "")) == len(named)
    states = {memory: {v for v in found if v[0] in "xs"} for memory, found in away.items()}
    assert dict(waits) == {m: f for m, f in states.items() if f}
    assert (NOTHING in lines) == (not again and not any(away.values()))


@QUICK
@given(strategies.chains(plain=True, exact=True), st.integers(50, 95))
def test_sentences_of_chains_match_their_stages(instance: Any, percent: int) -> None:
    plain = remat.solve(instance, algorithm="keep-all", budget=None)
    if plain.report is None:
        return
    check_stages(plain)
    less = remat.solve(instance, algorithm="rotor", budget=max(plain.peak_memory.values()) * percent // 100)
    if less.report is not None:
        check_stages(less)


@settings(QUICK, max_examples=8)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(45, 95))
def test_chains_with_a_host(sizes: list[int], percent: int) -> None:
    chain = remat.chain(
        forward_time=sizes,
        backward_time=2,
        output_size=[10 * size for size in sizes],
        saved_size=5,
        input_size=20,
        machine=remat.device(None, link=10),
        time_unit="unit",
        size_unit="unit",
    )
    whole = remat.solve(chain, algorithm="keep-all").peak_memory["device"]
    found = remat.solve(chain, algorithm="offload-greedy", budget={"device": whole * percent // 100})
    if found.report is not None:
        check_stages(found)


@settings(QUICK, max_examples=10)
@given(st.integers(3, 12), st.integers(1, 2), st.integers(0, 3))
def test_adjoints_by_levels(steps: int, ram: int, disk: int) -> None:
    storage = [{"name": "ram", "slots": ram}, *([{"name": "disk", "slots": disk, "write_time": 1}] if disk else [])]
    found = remat.solve(remat.adjoint(steps, storage=storage), algorithm="h-revolve" if disk else "revolve")
    assert found.report is not None
    check_stages(found)
    check_rows(found)
    assert [row.stage for row in found.stage_decisions] == [*range(steps)]
    assert found.stage_decisions[-1].runs == 0


@pytest.mark.parametrize("seed", range(12))
def test_pipelines_by_stage_and_micro_batch(seed: int) -> None:
    """All forwards, then all backwards, with drawn recomputation: the sentences tell which."""
    draw = random.Random(seed)
    devices, batches = draw.randint(2, 3), draw.randint(1, 4)
    held = [draw.randint(1, 3) for _ in range(devices)]
    instance = remat.pipeline(
        forward_time=[draw.randint(1, 3) for _ in range(sum(held))],
        backward_time=2,
        output_size=2,
        saved_size=3,
        devices=devices,
        micro_batches=batches,
        time_unit="unit",
        size_unit="unit",
    )
    wanted, stages, layer = set(), [], 1
    for device, count in enumerate(held):
        layers = list(range(layer, layer + count))
        stage: dict[str, Any] = {"layers": layers, "device": f"gpu{device}"}
        segments = []
        for one in layers:
            chosen = sorted(draw.sample(range(batches), draw.randint(0, batches)))
            if chosen:
                segments.append({"layers": [one], "micro_batches": chosen})
                wanted |= {(one, batch) for batch in chosen}
        stages.append(stage | ({"recompute": segments} if segments else {}))
        layer += count
    orders = {
        stage["device"]: [
            *(f"F{k}.{batch}" for batch in range(batches)),
            *(f"B{k}.{batch}" for batch in range(batches)),
        ]
        for k, stage in enumerate(stages)
    }
    document = {"schema": "remat.schedule/2", "stages": stages, "orders": orders}
    result = examine(instance, document).as_result()
    check_decisions(result)
    check_rows(result)
    found = set()
    for line in told(result):
        if m := re.match(r"stage ([0-9]+) .*: micro-batch(?:es)? (.+) recomputes? layers? (.+) \(", line):
            mine = {(one, batch) for one in numbers(m[3]) for batch in numbers(m[2])}
            assert {one for one, _ in mine} <= set(stages[int(m[1])]["layers"])
            found |= mine
    assert found == wanted
    counted = {
        (int(m[1]), int(m[2]))
        for task, count in deciding.runs_of_tasks(result).items()
        if count > 1 and (m := re.fullmatch(r"Fe([0-9]+)\.([0-9]+)", task))
    }
    assert counted == wanted
    assert (NOTHING in told(result)) == (not wanted)


@settings(QUICK, max_examples=10)
@given(strategies.dags(plain=True), st.integers(50, 95))
def test_sentences_of_graphs_match_their_runs(instance: Any, percent: int) -> None:
    plain = remat.solve(instance, algorithm="keep-all")
    if plain.report is None:
        return
    budget = max(plain.peak_memory.values()) * percent // 100
    for result in (plain, remat.solve(instance, algorithm="linearized-greedy", budget=budget)):
        if result.report is None:
            continue
        check_decisions(result)
        again = {value for value, count in deciding.runs_of_values(result).items() if count > 1}
        line = next((line for line in told(result) if line.startswith("recompute")), "")
        assert bool(line) == bool(again)
        groups = {group.decision: group for group in groups_of(result)}
        assert set(groups["recomputed"].values if again else ()) == again
        assert not again or f"recompute {len(again):,} value" in line
        assert all(f"{value} (" in line for value in again)


@given(st.sets(st.integers(0, 60), min_size=1))
@settings(max_examples=50)
def test_ranges_are_read_back(chosen: set[int]) -> None:
    assert numbers(ranges(sorted(chosen))) == chosen
    short = ranges(sorted(chosen), 3)
    if " more" in short:
        listed, _, rest = short.rpartition(" and ")
        assert len(numbers(listed)) + int(rest.removesuffix(" more")) == len(chosen)


def test_long_answers_are_cut() -> None:
    found = remat.solve(remat.adjoint(40, storage=[{"name": "ram", "slots": 3}]), algorithm="revolve")
    short, whole = ("\n".join(decision_words(found, all_of_them=every)) for every in (False, True))
    assert len(short) <= len(whole)
    assert "recompute steps" in short
    assert f"decisions       {short.splitlines()[0][:30]}" in found.summary()


def test_without_a_schedule_nothing_is_said() -> None:
    chain = remat.chain(forward_time=[1, 1], backward_time=1, output_size=4, input_size=4)
    assert told(remat.solve(chain, budget=1)) == []


def test_modules_are_listed_by_what_they_cost() -> None:
    rows = [("a", 2, 10), ("b", 1, 30), ("c", 0, 0), ("", 1, 5)]
    told_of = module_words(rows, Units("us", "B"))
    assert told_of == "recompute 4 operators: in b (30 us), a (10 us), (no module) (5 us)"
    assert module_words([("c", 0, 0)], Units("us", "B")) == NOTHING


def test_runs_are_counted_as_in_rows_and_chains_are_called_chains() -> None:
    loop = remat.solve(remat.adjoint(20, storage=[{"name": "ram", "slots": 2}]), algorithm="revolve")
    most = max(row.runs for row in loop.stage_decisions)
    assert most > 2
    assert f", up to {most} runs each (" in told(loop)[0]
    columns = {"forward_time": [1] * 4, "backward_time": 1, "output_size": 4, "saved_size": 4}
    joined = remat.join([columns, columns])
    kept = remat.solve(joined, algorithm="keep-all").peak_memory["memory"]
    result = remat.solve(joined, budget=kept - 8)
    chains = {row.chain for row in result.stage_decisions if row.decision == "recomputed"}
    named = {sentence.partition(": recompute stage")[0] for sentence in told(result) if ": recompute stage" in sentence}
    assert chains
    assert named == {f"chain {chain + 1}" for chain in chains}


def test_a_part_that_is_offloaded_counts_as_a_part():
    disk = remat.machine(
        memories={"memory": None, "disk": None},
        processors={"cpu": "memory"},
        links={("memory", "disk"): "1GB/s", ("disk", "memory"): "1GB/s"},
    )
    tree = remat.tree([-1, 0, 0, 1, 1, 2, 2], output_size=[2, 9, 8, 7, 6, 5, 4], workspace=3)
    least = remat.solve(tree, algorithm="liu").peak_memory["memory"]
    result = remat.solve(tree, machine=disk, budget={"memory": least - 1}, algorithm="postorder-min-io")
    partial = [row for row in result.decisions if row.offloaded and row.offloaded[0].size < row.size]
    assert partial
    words = " ".join(decision_words(result, all_of_them=True))
    for row in partial:
        assert f"{row.value} ({row.offloaded[0].size} B)" in words

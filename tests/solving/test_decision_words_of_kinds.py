"""Decision lines of trees, joins, several processors, hosts and weights: words, decisions and an oracle agree."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from typing import Any

import pytest

import remat
from remat.generate import generate
from remat.schedule.document import Run
from remat.solving.result import Result
from tests.oracles import deciding
from tests.solving.test_decision_words import check_decisions, numbers, told

LINE = re.compile(
    r"(?:(?P<again>recompute)|(?:keep|offload|fetch|copy)) (?P<count>[0-9,]+) values?"
    r"(?: (?:in|to|from) (?P<memory>\w+))?(?:, at most size [0-9,]+ at a time)? \((?P<figures>[^)]*)\): (?P<names>.*)"
)


def two_memories(first: str, second: str, *, processors: int) -> dict[str, Any]:
    return {
        "memories": [{"name": first}, {"name": second}],
        "processors": [{"name": f"p{k}", "memory": name} for k, name in enumerate((first, second)[:processors])],
        "links": [{"source": a, "target": b, "bandwidth": 7} for a, b in ((first, second), (second, first))],
    }


def check_moves(result: Result) -> None:
    """Runs and waiting values of the rows are those of the oracle; values of trees may leave in parts."""
    runs, away = deciding.runs_of_values(result), deciding.waiting(result)
    waits: dict[str, set[str]] = defaultdict(set)
    for row in result.decisions:
        assert row.runs == runs[row.value]
        assert (row.decision == "recomputed") == (runs[row.value] > 1)
        for stay in row.offloaded:
            waits[stay.memory].add(row.value)
    assert dict(waits) == away


def check_values(result: Result) -> None:
    """The lines on values name those that the oracle finds, with their sizes and number."""
    check_moves(result)
    again: set[str] = set()
    away: dict[str, set[str]] = defaultdict(set)
    size = dict(zip(result.graph.values, result.graph.size.tolist(), strict=True))
    for line in told(result):
        if not (match := LINE.fullmatch(line)):
            assert line.startswith(("keep ", "chain ")), line
            continue
        named = re.findall(r"(\S+) \(size ([0-9,]+)\)", match["names"])
        assert len(named) == int(match["count"].replace(",", ""))
        found = {name for name, _ in named}
        if match["again"]:
            again |= found
            assert all(int(shown.replace(",", "")) == size[name] for name, shown in named)
            total = sum(size[name] for name in found)
            assert match["figures"].startswith(f"size {total:,}, time ")
        else:
            away[match["memory"]] |= found
    runs = deciding.runs_of_values(result)
    assert again == {value for value, count in runs.items() if count > 1 and size[value]}
    waits = {memory: {value for value in found if size[value]} for memory, found in deciding.waiting(result).items()}
    assert dict(away) == {memory: found for memory, found in waits.items() if found}


def drawn_tree(seed: int) -> Result:
    """A tree in less memory than any order needs: some values wait on the disk."""
    draw = random.Random(seed)
    parent = [(node - 1) // 2 if node else -1 for node in range(15)]
    sizes = [draw.randint(2, 9) for _ in parent]
    tree = remat.tree(parent, output_size=sizes, machine=remat.device(link=5), size_unit="unit", time_unit="unit")
    whole = max(remat.solve(tree, algorithm="liu").peak_memory.values())
    need = max(sizes[node] + sum(sizes[k] for k, p in enumerate(parent) if p == node) for node in range(15))
    return remat.solve(tree, budget={"device": max(need, whole - draw.randint(1, 4))}, time_limit=10)


def drawn_graph(seed: int) -> Result:
    """A graph on two processors with a memory each, the second one small."""
    document = generate("dag", "layered", nodes=12, seed=seed)
    document["machine"] = two_memories("a", "b", processors=2)
    return remat.solve(document, algorithm="auto", budget={"a": 9_000, "b": 9_000}, time_limit=1)


@pytest.mark.parametrize("seed", range(8))
def test_trees_with_a_disk(seed: int) -> None:
    result = drawn_tree(seed)
    assert result.report is not None
    check_values(result)


@pytest.mark.parametrize("seed", range(6))
def test_joins(seed: int) -> None:
    """The recomputed stages of each chain are those whose forwards run more than once."""
    draw = random.Random(seed)
    chains = [
        {
            "input_size": 4,
            "stages": [
                {"forward_time": draw.randint(1, 5), "backward_time": 3, "output_size": draw.randint(2, 6),
                 "saved_size": draw.randint(5, 20)}
                for _ in range(draw.randint(3, 6))
            ],
        }
        for _ in range(draw.randint(2, 3))
    ]  # fmt: skip
    document = {
        "schema": "remat.instance/3", "kind": "join", "units": {"time": "unit", "memory": "unit"},
        "chains": chains, "loss": {"time": 1},
    }  # fmt: skip
    whole = max(remat.solve(document, algorithm="keep-all").peak_memory.values())
    result = remat.solve(document, algorithm="join-dp", budget=whole * draw.randint(60, 90) // 100)
    if result.report is None:
        return
    check_decisions(result)
    found = {
        (int(m[1]), number)
        for line in told(result)
        if (m := re.match(r"chain ([0-9]+): recompute stages? ([0-9, \-and]+?)(?:,? up| \()", line))
        for number in numbers(m[2])
    }
    runs: dict[tuple[int, int], int] = defaultdict(int)
    for task, count in deciding.runs_of_tasks(result).items():
        if m := re.fullmatch(r"Fe?([0-9]+)\.([0-9]+)", task):
            runs[int(m[1]), int(m[2])] += count
    assert found == {key for key, count in runs.items() if count > 1}


@pytest.mark.parametrize("seed", range(4))
def test_pipelines_with_a_host(seed: int) -> None:
    """The layers and micro-batches that lines offload are those whose values wait at the host."""
    draw = random.Random(seed)
    step = remat.pipeline(
        forward_time=[draw.randint(1, 3) for _ in range(4)],
        backward_time=4,
        output_size=3,
        saved_size=20,
        devices=2,
        memory=draw.choice([70, 90, 110]),
        micro_batches=3,
        host={"bandwidth": 50},
        time_unit="unit",
        size_unit="unit",
    )
    result = remat.solve(step, algorithm="pipe-plan", options={"moves": 20, "zoo": False})
    if result.report is None:
        return
    check_decisions(result)
    away, again = set(), set()
    for line in told(result):
        if m := re.match(r".*micro-batch(?:es)? (.+) offloads? layers? (.+) to host \(", line):
            away |= {(layer, batch) for layer in numbers(m[2]) for batch in numbers(m[1])}
        elif m := re.match(r".*micro-batch(?:es)? (.+) recomputes? layers? (.+) \(", line):
            again |= {(layer, batch) for layer in numbers(m[2]) for batch in numbers(m[1])}
    waits = deciding.waiting(result).get("host", set())
    assert away == {tuple(map(int, re.fullmatch(r"[a-z]+([0-9]+)\.([0-9]+)", value).groups())) for value in waits}
    runs = deciding.runs_of_tasks(result)
    forwards = {task: tuple(map(int, task[2:].split("."))) for task in runs if task.startswith("Fe")}
    assert again == {place for task, place in forwards.items() if runs[task] > 1}
    devices = dict(re.findall(r"(?:layers |, )([0-9]+(?:-[0-9]+)?) on (gpu[0-9])", told(result)[0]))
    placed = {layer: device for layers, device in devices.items() for layer in numbers(layers)}
    steps = [step for step in result.steps if isinstance(step, Run) and step.task in forwards]
    assert placed == {forwards[step.task][0]: step.on[0] for step in steps}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_graphs_on_two_processors(seed: int) -> None:
    result = drawn_graph(seed)
    if result.report is not None:
        check_values(result)


@pytest.mark.parametrize("hidden", [64, 256])
def test_stages_are_updated_where_the_words_say(hidden: int) -> None:
    sizes = {"layers": 4, "hidden": hidden, "heads": 4, "sequence": 32, "vocabulary": 100, "batch": 4}
    document = generate("chain", "transformer", **sizes, parameters="device", states="host")
    result = remat.solve(document, algorithm="weight-offload")
    updated: dict[str, set[int]] = defaultdict(set)
    for step in result.steps:
        if isinstance(step, Run) and step.task.startswith("U"):
            updated["+".join(step.on) or result.machine.processors[0].name].add(int(step.task[1:]))
    assert len(updated) == 2
    (line,) = (line for line in told(result) if line.startswith("update "))
    named = re.findall(r"stages? ([0-9, \-and]+?) on (\w+) \(optimizer states: ([^)]*)\)", line)
    assert {processor: numbers(stages) for stages, processor, _ in named} == dict(updated)
    size = dict(zip(result.graph.values, result.graph.size.tolist(), strict=True))
    for _, processor, states in named:
        assert states == remat.units.format_size(sum(size[f"o{stage}"] for stage in updated[processor]), result.units)


@pytest.mark.slow
@pytest.mark.parametrize("share", [80, 90])
def test_parameters_and_states_at_the_host(share: int) -> None:
    """What is offloaded or held is told by role and stage, and the oracle finds the same values."""
    sizes = {"layers": 2, "hidden": 64, "heads": 4, "sequence": 32, "vocabulary": 100, "batch": 4}
    document = generate("chain", "transformer", **sizes, parameters="device", states="host")
    whole = remat.solve(document, algorithm="dag-offload-best", time_limit=5).peak_memory["device"]
    result = remat.solve(document, budget={"device": whole * share // 100, "host": "100MB"}, time_limit=5)
    assert result.report is not None
    check_moves(result)
    letters = {"parameters": "w", "new parameters": "nw", "optimizer states": "o", "new optimizer states": "no",
               "gradients": "g", "saved values": "s", "outputs": "x", "output gradients": "y"}  # fmt: skip
    named: dict[str, set[str]] = defaultdict(set)
    for line in told(result):
        line = re.sub("the input and the outputs of stages? ", "the outputs of stages 0, ", line)
        line = re.sub(r"the input to", "the outputs of stage 0 to", line)
        if m := re.match(
            r"(?:keep|offload|fetch|copy) the ([a-z ]+) of stages? ([0-9, \-and]+?) (?:\(.*?\) )?(?:in|to|from) (\S+)",
            line,
        ):
            named[m[3]] |= {f"{letters[m[1]]}{number}" for number in numbers(m[2])}
    size = dict(zip(result.graph.values, result.graph.size.tolist(), strict=True))
    waits = {memory: {one for one in found if size[one]} for memory, found in deciding.waiting(result).items()}
    assert dict(named) == {memory: found for memory, found in waits.items() if found}


@pytest.mark.parametrize("seed", range(4))
def test_times_of_recomputed_stages_add_up_to_the_recompute_time(seed: int) -> None:
    """Also if the forward that saves, which runs last, takes longer than the one that does not."""
    draw = random.Random(seed)
    length = draw.randint(4, 9)
    times = [draw.randint(1, 9) for _ in range(length)]
    chain = remat.chain(
        forward_time=times,
        saving_forward_time=[time + draw.randint(1, 5) for time in times],
        backward_time=2,
        output_size=[draw.randint(1, 5) for _ in range(length)],
        saved_size=[draw.randint(4, 9) for _ in range(length)],
        input_size=3,
        time_unit="unit",
        size_unit="unit",
    )
    result = remat.solve(chain, algorithm="rotor", budget="60%")
    assert result.recompute_time == sum(row.recompute_time for row in result.stage_decisions) > 0
    (line,) = (line for line in told(result) if line.startswith("recompute"))
    assert f"(time {result.recompute_time}" in line


def test_what_must_be_there_at_the_end_is_there_at_once() -> None:
    """The last copies end with the schedule: their values share the memory at its end."""
    stage = {"forward_time": 1, "backward_time": 2, "output_size": 2, "update_time": 1, "parameter_size": 3}
    document: dict[str, Any] = {
        "schema": "remat.instance/3",
        "kind": "chain",
        "input_size": 2,
        "stages": [stage] * 3,
        "machine": two_memories("device", "host", processors=1),
        "parameter_memory": "host",
        "units": {"time": "unit", "memory": "unit"},
    }
    for bandwidth in (1, None):
        for link in document["machine"]["links"]:
            link.pop("bandwidth", None)
            link.update({} if bandwidth is None else {"bandwidth": bandwidth})
        lines = told(remat.solve(document, algorithm="weight-offload"))
        assert "copy the new parameters of stages 1-3 to host (size 9)" in lines
        assert "fetch the parameters of stages 1-3 from host (size 9)" in lines

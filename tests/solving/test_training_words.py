"""Words and rows on the training of a chain: homes of parameters and states, updates, and the names of stages."""

from __future__ import annotations

import re
from typing import Any

import pytest

import remat
from remat.report.page.build import page
from remat.report.text.decisions import stages_table
from remat.report.text.summary import lines_of
from remat.solving.decisions.words import decision_words
from remat.solving.result import Result
from tests.algorithms.offload.trained import chain, machine, stage
from tests.oracles import deciding


def told(result: Result) -> list[str]:
    return list(decision_words(result))


def of_names(*names: str, **more: Any) -> dict[str, Any]:
    return chain(*[stage(update=1) | {"name": name} for name in names], **more)


@pytest.fixture(scope="module")
def shared() -> Result:
    """A chain whose states are at the host, and whose updates are divided between the host and the device."""
    names = ["embedding", *["block"] * 30, "head"]
    stages = [
        stage(8, 16, optimizer=2 if k % 2 else 900, update=20 if k % 2 else 1) | {"name": name}
        for k, name in enumerate(names)
    ]
    result = remat.solve(chain(*stages) | {"machine": machine(speed=0.1)}, algorithm="weight-offload")
    steps = result.timeline()
    assert {str(on) for name, on in zip(steps["name"], steps["on"], strict=True) if name[:1] == "U"} == {"cpu", "gpu"}
    return result


def test_one_line_says_where_parameters_and_states_are(shared: Result) -> None:
    assert told(shared)[0] == "parameters: size 128 in device; optimizer states: size 14,432 in host"
    graph = shared.graph
    for letter, memory, size in (("w", "device", 128), ("o", "host", 14432)):
        placed = [place for place in graph.inputs if re.fullmatch(f"{letter}[0-9]+", graph.values[place.value])]
        assert {place.memory for place in placed} == {memory}
        assert sum(int(graph.size[place.value]) for place in placed) == size


def test_a_choice_of_memories_is_told_stage_by_stage() -> None:
    """The schedule chooses where parameters and states are: the line follows its initial residencies."""
    document = chain(*[stage(1, 1, optimizer=12)] * 4, parameters="any", optimizer_memory="any")
    document = document | {"schema": "remat.instance/3"}
    result = remat.solve(document, algorithm="weight-offload", budget=60)
    assert result.columns is not None
    where: dict[str, set[str]] = {}
    for value, memory in _initial(result):
        where.setdefault(value[0], set()).add(memory)
    line = told(result)[0]
    for letter, role in (("w", "parameters"), ("o", "optimizer states")):
        (part,) = (part for part in line.split("; ") if part.startswith(f"{role}: "))
        assert set(re.findall(r" in (\w+)", part)) == where[letter]
        assert ("(stage" in part) == (len(where[letter]) > 1)
    assert "(stage 3)" in line


def _initial(result: Result) -> list[tuple[str, str]]:
    machine, graph = result.machine, result.graph
    return [(graph.values[place.value], place.memory or machine.memories[0].name) for place in graph.inputs]


def test_one_memory_needs_no_such_line() -> None:
    document = chain(stage(), stage(), optimizer_memory="device")
    document["machine"] = {"memories": [{"name": "device"}], "processors": [{"name": "gpu", "memory": "device"}]}
    assert not [line for line in told(remat.solve(document)) if line.startswith("parameters:")]


def test_updates_without_states_are_told() -> None:
    """Plain gradient descent has no optimizer states."""
    document = chain(stage(9, 18, optimizer=0, update=6), stage(9, 18, optimizer=0, update=6))
    result = remat.solve(document, algorithm="weight-offload")
    assert any(
        re.match(r"update stages? [0-9 -]+ on ", line) and "optimizer states" not in line for line in told(result)
    )


def test_verbs_say_which_way_values_go(shared: Result) -> None:
    """States that the device updates come and go; parameters that the host updates return."""
    lines = told(shared)
    assert not [line for line in lines if re.match("(hold|store) ", line)]
    assert [line for line in lines if re.match("fetch the optimizer states of stages .* from host", line)]
    assert [line for line in lines if re.match("copy the new optimizer states of stages .* to host", line)]
    assert [line for line in lines if re.match("copy the new parameters of stages .* to device", line)]
    assert [line for line in lines if re.match("keep the activations of stages ", line)]


def test_stages_of_few_names_are_numbered_once(shared: Result) -> None:
    assert [text for name, text in lines_of(shared) if name == "stages"] == ["1 embedding, 2-31 block, 32 head"]
    assert not [line for line in told(shared) if re.search(r"\((embedding|block|head)", line)]
    assert "stages: 1 embedding, 2-31 block, 32 head" in page(shared)


@pytest.mark.parametrize("names", [("a", "b", "c"), ("block", "block", "block"), tuple("aabbccddeeffgg")])
def test_other_names_are_not_listed(names: tuple[str, ...]) -> None:
    result = remat.solve(of_names(*names), algorithm="weight-offload")
    assert not [text for name, text in lines_of(result) if name == "stages"]


def test_lists_that_are_cut_name_their_whole(shared: Result) -> None:
    hint = "complete lists: remat decisions (by stage), or result.stage_decisions"
    cut = [line for line in told(shared) if re.search(r" and \d+ more\b", line)]
    assert cut
    assert told(shared)[-1] == hint
    every = list(decision_words(shared, all_of_them=True))
    assert not [line for line in every if re.search(r" and \d+ more\b", line)]
    assert hint not in every


def test_rows_of_stages_say_where_states_are_and_who_updates(shared: Result) -> None:
    """The timeline names the processor of each update, and the memories to which values go before it."""
    steps = shared.timeline()
    seen: dict[str, list[str]] = {}
    for kind, name, memory in zip(steps["kind"], steps["name"], steps["target"], strict=True):
        if kind == "copy":
            seen.setdefault(name, []).append(memory)
    on = {name: where for name, where in zip(steps["name"], steps["on"], strict=True) if re.fullmatch("U[0-9]+", name)}
    for row in shared.stage_decisions:
        number = row.stage + 1
        assert row.updated_on == str(on[f"U{number}"])
        assert row.parameters == tuple(dict.fromkeys(["device", *seen.get(f"w{number}", ())]))
        assert row.states == tuple(dict.fromkeys(["host", *seen.get(f"o{number}", ())]))
        assert row.states == (("host",) if row.updated_on == "cpu" else ("host", "device"))
    head, *rows = stages_table(shared).split("\n\n")[0].splitlines()
    assert head.split("  ")[-1].strip() == "updated on"
    assert [row.split()[-1] for row in rows] == [row.updated_on for row in shared.stage_decisions]
    assert shared.stage_decisions.to_dicts()[0]["states"] == list(shared.stage_decisions[0].states)


def test_a_stage_whose_parameters_leave_shows_both_memories() -> None:
    document = chain(*[stage(20, 40, parameters=8, saved=9, optimizer=0)] * 5)
    result = remat.solve(document, algorithm="weight-offload", budget=70)
    gone = {int(name[1:]) - 1 for name in deciding.waiting(result).get("host", ()) if name[0] == "w"}
    assert gone
    assert {row.stage for row in result.stage_decisions if row.updated_on == "gpu" and "host" in row.parameters} == gone


def test_chains_without_parameters_have_no_such_columns() -> None:
    plain = remat.chain(forward_time=[1, 1], backward_time=1, output_size=1, input_size=1)
    result = remat.solve(plain, algorithm="keep-all")
    assert [(row.parameters, row.states, row.updated_on) for row in result.stage_decisions] == [((), (), "")] * 2
    assert "updated on" not in stages_table(result)

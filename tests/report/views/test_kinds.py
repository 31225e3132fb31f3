"""One list of kinds: `remat show`, pages, pictures and the table of a plan name and count the same bytes."""

import re

import pytest

import remat
from remat.report.page.build import page
from remat.report.plot.style import peak_in_words
from remat.report.text.plan_view import stage_rows
from remat.report.text.schedule_view import schedule_view
from remat.report.views.residents import fullest_memory
from remat.solving.verifying import examine
from remat.units import format_size
from tests.oracles.training_memory import recounted
from tests.report.results import chain_result

LAYERS = {
    "forward_time": [2, 3, 2, 2, 3, 2],
    "backward_time": 4,
    "output_size": 5,
    "saved_size": 11,
    "forward_workspace": 3,
    "parameter_size": 7,
    "optimizer_size": 13,
    "micro_batches": 3,
    "time_unit": "unit",
    "size_unit": "unit",
}


def pipeline():
    return remat.plan(remat.pipeline(devices=2, memory=180, **LAYERS), options={"moves": 60})


def by_kind(text, memory):
    """The lines "by kind" of a memory in what `remat show` prints, with the depth of each."""
    part = text[text.index(f"\n{memory}: peak") :]
    lines = part[part.index("by kind") :].splitlines()[1:]
    found = {}
    for line in lines:
        match = re.fullmatch(r"( +)(\S.*?) {2,}([\d,]+) +[\d.]+ %", line)
        if match is None:
            return found
        found[match[2]] = (len(match[1]) // 2, int(match[3].replace(",", "")))
    return found


def test_pipelines_are_told_in_the_same_kinds_everywhere():
    planned = pipeline()
    result = planned.result
    shown = schedule_view(examine(result.instance, result.to_dict()))
    drawn = page(result)
    for memory in result.machine.memories:
        told = by_kind(shown, memory.name)
        counted = recounted(result, memory.name)
        assert {name: size for name, (depth, size) in told.items() if depth == 1} == counted
        parts = {name: size for name, (depth, size) in told.items() if depth == 2}
        assert sum(parts.values()) == counted["activations"]
        leaves = {**{k: size for k, size in counted.items() if k != "activations"}, **parts}
        words = re.search(rf"<b>{memory.name}: .*?</div><p class=\"soft\">(.*?)</p>", drawn)[1]
        assert dict(re.findall(r"(?:^|, )([a-z ]+) ([\d,]+) \(", words)) == {k: f"{v:,}" for k, v in leaves.items()}
        rows = [row for row in stage_rows(planned) if row["device"] == memory.name]
        assert {row["activations"] for row in rows} == {counted["activations"]}
        assert {row["workspace"] for row in rows} == {counted.get("workspace", 0)}
        for kind, term in (("parameters",) * 2, ("gradients",) * 2, ("states", "optimizer states")):
            assert sum(row[kind] for row in rows) == counted[term]
        if memory.name == fullest_memory(result):
            legend = re.findall(r">([a-z ]+)<small> ([\d,]+)</small>", drawn)
            assert dict(legend) == {k: f"{v:,}" for k, v in leaves.items()}
            first = max(leaves, key=leaves.__getitem__)
            assert f": {first} {format_size(leaves[first], result.units)}" in peak_in_words(result)


@pytest.mark.parametrize(
    "made", [chain_result, lambda: remat.solve(remat.example("gpt2_xl_b4"), budget="27GiB", algorithm="rotor")]
)
def test_chains_are_told_in_the_same_kinds(made):
    result = made()
    kinds = re.findall(r">([a-z ]+)<small> \S", page(result))
    memory = fullest_memory(result)
    assert set(by_kind_names(schedule_view(examine(result.instance, result.to_dict())), memory)) == set(kinds)


def by_kind_names(text, memory):
    part = text[text.index(f"\n{memory}: peak") :]
    lines = part[part.index("by kind") :].splitlines()[1:]
    names = []
    for line in lines:
        match = re.fullmatch(r" +(\S.*?) {2,}\S.* %", line)
        if match is None:
            break
        names.append(match[1])
    return names

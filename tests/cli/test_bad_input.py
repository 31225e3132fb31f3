"""Every bad input is one line on standard error with its JSON path, and exit code 2."""

from __future__ import annotations

import copy
import gzip
import json
from typing import Any

import pytest

from tests.cli.helpers import CHAIN, Run, Save

DAG: dict[str, Any] = {
    "schema": "remat.instance/1",
    "kind": "dag",
    "values": [{"id": "v", "size": 1}, {"id": "w", "size": 1}],
    "tasks": [{"id": "a", "time": 1, "writes": ["v"]}, {"id": "b", "time": 1, "reads": ["v"], "writes": ["w"]}],
}
TREE: dict[str, Any] = {"schema": "remat.instance/1", "kind": "tree", "parent": [-1, 0, 0], "output_size": [1, 2, 3]}
ADJOINT: dict[str, Any] = {"schema": "remat.instance/1", "kind": "adjoint", "steps": 4}


def stage(**changes: Any) -> dict[str, Any]:
    document = copy.deepcopy(CHAIN)
    document["stages"][1] |= changes
    document["units"] = {}
    return document


TRAINED = stage(parameter_size=4) | {"schema": "remat.instance/3"}

DOCUMENTS = {
    "not an object": ([CHAIN], "$: ", "not a list"),
    "no schema": ({"kind": "chain"}, "$.schema", "missing"),
    "other schema": ({**CHAIN, "schema": "remat.instance/9"}, "$.schema", "remat.instance/9"),
    "no kind": ({"schema": "remat.instance/1"}, "$.kind", "missing"),
    "unknown kind": ({**CHAIN, "kind": "chian"}, "$.kind", "'chian'", "chain, adjoint, dag, tree"),
    "unknown key": ({**CHAIN, "stagse": []}, "$.stagse", "unknown key"),
    "unknown key of a stage": (stage(saved=3), "$.stages[1].saved", "unknown key"),
    "unknown unit": ({**CHAIN, "units": {"time": "h"}}, "$.units.time", "'h'"),
    "units that are no object": ({**CHAIN, "units": 5}, "$.units", "expected an object"),
    "missing key": ({**CHAIN, "input_size": None}, "$.input_size", "null"),
    "negative time": (stage(forward_time=-1), "$.stages[1].forward_time", "-1"),
    "negative size": (stage(output_size=-1), "$.stages[1].output_size", "-1 is negative"),
    "fraction of a byte": (stage(output_size=1.5), "$.stages[1].output_size", "1.5"),
    "boolean size": (stage(output_size=True), "$.stages[1].output_size", "true"),
    "decimal comma": (stage(output_size="8,5GB"), "$.stages[1].output_size", "'8,5GB'"),
    "bits": (stage(output_size="8GBit"), "$.stages[1].output_size", "'8GBit'", "'GBit'"),
    "huge size": (stage(output_size=10**40), "$.stages[1].output_size", "2^62"),
    "size with unit in a unit instance": (
        {**CHAIN, "static_memory": "8GB"},
        "$.static_memory",
        "counts memory in units",
    ),
    "time with unit in a unit instance": (
        {**DAG, "units": {"time": "unit"}, "tasks": [{"id": "a", "time": "3ms", "size": 1}]},
        "$.tasks[0].time",
        "counts time in units",
    ),
    "total beyond 2^62": (stage(output_size=2**61, saved_size=2**61), "$", "2^62"),
    "repeat of 10^12": (stage(repeat=10**12), "$.stages[1].repeat", "10,000,000"),
    "repeats beyond the most": (stage(repeat=10**7), "$.stages", "10,000,002 stages"),
    "empty stages": ({**CHAIN, "stages": []}, "$.stages", "the list is empty"),
    "surrogate in a name": ({**CHAIN, "name": "\ud800"}, "$.name", "Unicode"),
    "surrogate in an id": ({**DAG, "values": [{"id": "\ud800", "size": 1}]}, "$.values[0].id", "Unicode"),
    "cyclic dag": (
        {**DAG, "tasks": [{"id": "a", "time": 1, "reads": ["w"], "writes": ["v"]}, DAG["tasks"][1]]},
        "$.tasks[0].reads",
        "cycle",
    ),
    "dangling reference": (
        {**DAG, "tasks": [DAG["tasks"][0], {"id": "b", "time": 1, "reads": ["x"], "writes": ["w"]}]},
        "$.tasks[1].reads[0]",
        "'x' is not a value",
    ),
    "dangling output": ({**DAG, "outputs": ["x"]}, "$.outputs[0]", "'x'"),
    "output in an unknown memory": ({**DAG, "outputs": [{"value": "w", "memory": "m"}]}, "$.outputs[0].memory", "'m'"),
    "duplicate task ids": ({**DAG, "tasks": [DAG["tasks"][0]] * 2}, "$.tasks[1].id", "'a'"),
    "duplicate value ids": ({**DAG, "values": [DAG["values"][0]] * 2}, "$.values[1].id", "'v'"),
    "no tasks": ({**DAG, "tasks": []}, "$.tasks", "empty"),
    "two roots": ({**TREE, "parent": [-1, 0, -1]}, "$.parent", "two roots"),
    "no root": ({**TREE, "parent": [1, 0, 0]}, "$.parent", "circle"),
    "parent cycle": ({**TREE, "parent": [-1, 2, 1]}, "$.parent[1]", "circle"),
    "parent out of range": ({**TREE, "parent": [-1, 0, 3]}, "$.parent[2]", "3"),
    "wrong length": ({**TREE, "output_size": [1]}, "$.output_size", "3 nodes"),
    "empty tree": ({**TREE, "parent": [], "output_size": []}, "$.parent", "empty"),
    "negative entry": ({**TREE, "output_size": [1, -2, 3]}, "$.output_size[1]", "-2"),
    "tree beyond 2^62": ({**TREE, "output_size": [2**62, 1, 1]}, "$", "2^62"),
    "no steps": ({**ADJOINT, "steps": 0}, "$.steps", "0"),
    "too many steps": ({**ADJOINT, "steps": 10**12}, "$.steps", "1,000,000,000"),
    "unknown key of a step": ({**ADJOINT, "steps": [{"times": 1}]}, "$.steps[0].times", "unknown key"),
    "negative time of a step": ({**ADJOINT, "steps": [{}, {"forward_time": -1}]}, "$.steps[1].forward_time", "-1"),
    "a step that is no object": ({**ADJOINT, "steps": [3]}, "$.steps[0]", "expected an object"),
    "ZeRO without ranks": ({**TRAINED, "sharding": {"zero": 2}}, "$.sharding.data", "missing"),
    "ZeRO of one rank": ({**TRAINED, "sharding": {"data": 1, "zero": 2}}, "$.sharding.data", "but there is one"),
    "ranks without parameters": (
        {**CHAIN, "schema": "remat.instance/3", "sharding": {"data": 2}},
        "$.sharding",
        "no stage has parameters",
    ),
    "ranks in an older schema": (
        {**TRAINED, "schema": "remat.instance/2", "sharding": {"data": 2}},
        "$.sharding",
        "remat.instance/3",
    ),
    "a ratio of 0": (
        {**TRAINED, "machine": {"links": [{"source": "memory", "target": "memory", "ratio": 0}]}},
        "$.machine.links[0].ratio",
        "0",
    ),
    "bandwidth 0": (
        {**ADJOINT, "storage": [{"name": "disk", "bandwidth": 0}]},
        "$.storage[0].bandwidth",
        "0",
    ),
    "unknown memory of a processor": (
        {**CHAIN, "machine": {"memories": [{"name": "device"}]}},
        "$.machine.processors[0].memory",
        "'memory'",
    ),
}


@pytest.mark.parametrize("command", ["solve", "show"])
@pytest.mark.parametrize("case", DOCUMENTS, ids=lambda case: case.replace(" ", "-"))
def test_bad_documents_are_refused_in_one_line(run: Run, save: Save, case: str, command: str) -> None:
    document, path, *parts = DOCUMENTS[case]
    outcome = run(command, save(document))
    outcome.assert_refused(f"Error: {path}", *parts)
    assert "more)" not in outcome.err


TEXTS: dict[str, tuple[str | bytes, tuple[str, ...]]] = {
    "malformed": ('{"schema": "remat.instance/1",}', ("malformed JSON at line 1, column",)),
    "empty": ("", ("malformed JSON",)),
    "two documents": ("{} {}", ("malformed JSON",)),
    "duplicate key": ('{"schema": "remat.instance/1", "schema": 1}', ("$: duplicate key 'schema'",)),
    "duplicate key inside": (
        json.dumps(CHAIN).replace('"output_size": 3', '"output_size": 3, "output_size": 4'),
        ("$.stages[0]: duplicate key 'output_size'",),
    ),
    "NaN": (json.dumps(stage(forward_time=float("nan"))), ("$.stages[1].forward_time", "nan")),
    "infinite": (json.dumps(stage(forward_time=float("inf"))), ("$.stages[1].forward_time", "inf")),
    "minus infinite": (json.dumps(stage(output_size=float("-inf"))), ("$.stages[1].output_size", "inf")),
    "huge exponent": (json.dumps(CHAIN).replace('"input_size": 2', '"input_size": 1e99999'), ("$.input_size", "2^62")),
    "absurd exponent": ('{"input_size": 1e99999999999999999999}', ("exponent",)),
    "huge time": (
        json.dumps(CHAIN).replace('"forward_time": 2', '"forward_time": 1e301'),
        ("$.stages[1].forward_time", "1e300"),
    ),
    "5000 digits": (
        json.dumps(CHAIN).replace('"input_size": 2', '"input_size": ' + "9" * 5000),
        ("$.input_size", "5,000 digits", "at most 4,300"),
    ),
    "nested lists": ("[" * 100_000, ("nested too deeply",)),
    "nested objects": ('{"a": ' * 100_000 + "1" + "}" * 100_000, ("nested too deeply",)),
    "nested inside": (
        '{"schema": "remat.instance/1", "kind": "chain", "stages": ' + "[" * 100_000 + "]" * 100_000 + "}",
        ("nested too deeply",),
    ),
    "not UTF-8": (b'{"name": "\xff"}', ("UTF-8",)),
    "truncated gzip": (gzip.compress(json.dumps(CHAIN).encode())[:-20], ("damaged gzip",)),
    "gzip of nothing": (b"\x1f\x8b", ("damaged gzip",)),
}


@pytest.mark.parametrize("case", TEXTS, ids=lambda case: case.replace(" ", "-"))
def test_bad_texts_are_refused_in_one_line(run: Run, save: Save, case: str) -> None:
    content, parts = TEXTS[case]
    run("show", save(content)).assert_refused(*parts)


@pytest.mark.parametrize("case", TEXTS, ids=lambda case: case.replace(" ", "-"))
def test_texts_from_standard_input(run: Run, case: str) -> None:
    content, parts = TEXTS[case]
    run("solve", "-", stdin=content if isinstance(content, bytes) else content.encode()).assert_refused(*parts)


def test_files_that_cannot_be_read(run: Run, save: Save, tmp_path: Any, tiny: str) -> None:
    run("solve", tmp_path / "none.json").assert_refused("none.json", "No such file")
    run("solve", tmp_path).assert_refused("Is a directory")
    run("solve", tmp_path / "lecture_l5.json").assert_refused("the shipped instance is example:lecture_l5")
    run("show", "example:lectuer_l5").assert_refused("'lectuer_l5'", "did you mean 'lecture_l5'?")
    run("show", "example:").assert_refused("several shipped instances")
    run("show", "example:joins").assert_refused("'joins' is a folder", "siamese_resnet18_b32")
    run("show", "example:tree").assert_refused("'tree' is a folder", "binary_n1000", "random_n200")
    run("verify", tiny, tmp_path / "none.json").assert_refused("cannot read schedule")
    run("solve", tiny, "--machine", tmp_path / "none.json").assert_refused("--machine", "No such file")


MACHINES = {
    "unknown key": ({"memory": []}, "$.memory", "unknown key"),
    "no memories": ({"memories": []}, "$.memories", "empty"),
    "capacity in bytes for a unit instance": ({"memories": [{"name": "memory", "capacity": "8GB"}]}, "$.memories[0]"),
}


@pytest.mark.parametrize("case", MACHINES, ids=lambda case: case.replace(" ", "-"))
def test_bad_machines_are_refused_in_one_line(run: Run, save: Save, tiny: str, case: str) -> None:
    document, *parts = MACHINES[case]
    run("solve", tiny, "--machine", save(document, "machine.json")).assert_refused("--machine: ", *parts)

"""Workflows of WfFormat: three shapes of public workflows under three budgets, and broken documents."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest

import remat
from remat.bridges.wfcommons.importing import import_workflow
from remat.errors import InstanceError
from tests.cli.helpers import Run

Task = tuple[str, list[str], list[str]]


def workflow(tasks: list[Task], *, version: str = "1.5", seed: int = 0) -> dict[str, Any]:
    """A workflow of tasks with input and output files; parents follow from the files."""
    draw = random.Random(seed)
    names = dict.fromkeys(file for _, reads, writes in tasks for file in (*reads, *writes))
    makers = {file: task for task, _, writes in tasks for file in writes}
    listed = [
        {
            "name": task,
            "id": task,
            "parents": sorted({makers[file] for file in reads if file in makers}),
            "children": [],
            "inputFiles": reads,
            "outputFiles": writes,
        }
        for task, reads, writes in tasks
    ]
    runs = [{"id": task, "runtimeInSeconds": draw.randint(1, 100) / 4, "memoryInBytes": 10} for task, _, _ in tasks]
    files = [{"id": file, "sizeInBytes": draw.randint(1, 1000)} for file in names]
    return {
        "name": "drawn",
        "schemaVersion": version,
        "workflow": {
            "specification": {"tasks": listed, "files": files},
            "execution": {"makespanInSeconds": 1, "executedAt": "2020-01-01T00:00:00Z", "tasks": runs},
        },
    }


def genomes(people: int = 8, chromosomes: int = 2) -> list[Task]:
    """1,000-genome: individuals merged per chromosome, parallel sifting, frequency and overlap per population."""
    tasks: list[Task] = []
    for c in range(chromosomes):
        tasks += [(f"individuals{c}_{k}", [f"vcf{c}"], [f"part{c}_{k}"]) for k in range(people)]
        tasks.append((f"merge{c}", [f"part{c}_{k}" for k in range(people)], [f"merged{c}"]))
        tasks.append((f"sifting{c}", [f"annotation{c}"], [f"sifted{c}"]))
        for p in range(3):
            for kind in ("overlap", "frequency"):
                tasks.append((f"{kind}{c}_{p}", [f"merged{c}", f"sifted{c}", f"population{p}"], [f"{kind}{c}_{p}.out"]))
    return tasks


def montage(images: int = 6) -> list[Task]:
    """Montage: project, difference of neighbours, fit, background model, correct, add."""
    tasks: list[Task] = [(f"project{k}", [f"raw{k}"], [f"image{k}"]) for k in range(images)]
    pairs = [(k, k + 1) for k in range(images - 1)] + [(k, k + 2) for k in range(images - 2)]
    tasks += [(f"diff{a}_{b}", [f"image{a}", f"image{b}"], [f"fit{a}_{b}"]) for a, b in pairs]
    tasks.append(("model", [f"fit{a}_{b}" for a, b in pairs], ["corrections"]))
    tasks += [(f"background{k}", [f"image{k}", "corrections"], [f"corrected{k}"]) for k in range(images)]
    return [*tasks, ("add", [f"corrected{k}" for k in range(images)], ["mosaic"])]


def epigenomics(lanes: int = 4) -> list[Task]:
    """Epigenomics: split, four steps per lane, merge, index, pileup."""
    tasks: list[Task] = [("split", ["reads"], [f"s{k}.0" for k in range(lanes)])]
    for k in range(lanes):
        for step, name in enumerate(("filter", "sol2sanger", "fast2bfq", "map")):
            tasks.append((f"{name}{k}", [f"s{k}.{step}"], [f"s{k}.{step + 1}"]))
    merged = ("merge", [f"s{k}.4" for k in range(lanes)], ["merged"])
    return [*tasks, merged, ("index", ["merged"], ["indexed"]), ("pileup", ["indexed"], ["result"])]


@pytest.mark.parametrize("shape", [genomes, montage, epigenomics])
@pytest.mark.parametrize("version", ["1.5", "1.6"])
def test_public_shapes_are_solved_under_three_budgets(shape: Any, version: str) -> None:
    tasks = shape()
    instance = remat.load(import_workflow(workflow(tasks, version=version)))
    files = {file for _, reads, writes in tasks for file in (*reads, *writes)}
    assert len(instance.values) == len(files)
    assert len(instance.tasks) == len(tasks)
    if version == "1.6":
        return
    whole = remat.solve(instance, time_limit="0.3s")
    least = max(whole.peak_memory.values())
    for share in (1.0, 0.9, 0.8):
        result = remat.solve(instance, budget=int(share * least), time_limit="0.3s")
        if result.order:
            assert max(result.peak_memory.values()) <= share * least
            assert {*result.order} == {task.id for task in instance.tasks}
        else:
            assert share < 1
            assert result.status in ("infeasible", "unknown")


def test_inputs_outputs_and_memory() -> None:
    given = workflow([("a", ["in"], ["x", "y"]), ("b", ["x", "in"], ["out"])])
    made = import_workflow(given, memory=True, name="mine")
    assert made["inputs"] == ["in"]
    assert made["outputs"] == ["y", "out"]
    assert [task["workspace"] for task in made["tasks"]] == [10, 10]
    assert made["name"] == "mine"
    assert "workspace" not in import_workflow(given)["tasks"][0]


def test_parents_without_files_are_kept() -> None:
    given = workflow([("a", [], ["x"]), ("b", [], ["y"]), ("c", [], [])])
    rows = given["workflow"]["specification"]["tasks"]
    rows[1]["parents"], rows[1]["children"] = ["a"], ["c"]
    made = import_workflow(given)
    assert made["tasks"][1]["reads"] == ["a->b"]
    assert made["tasks"][2]["reads"] == ["b->c"]
    assert made["values"][-2:] == [{"id": "a->b", "size": 0}, {"id": "b->c", "size": 0}]


def broken(change: Any) -> dict[str, Any]:
    given = copy.deepcopy(workflow([("a", ["in"], ["x"]), ("b", ["x"], ["out"])]))
    change(given, given["workflow"]["specification"], given["workflow"]["execution"])
    return given


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d, s, e: d.update(schemaVersion="1.4"), "$.schemaVersion: expected WfFormat 1.5 or 1.6, not '1.4'"),
        (lambda d, s, e: d.update(workflow=3), "$.workflow: expected an object"),
        (lambda d, s, e: d["workflow"].pop("execution"), "$.workflow.execution: expected an object: without a run"),
        (lambda d, s, e: s.update(tasks={}), "$.workflow.specification.tasks: expected a list of objects"),
        (lambda d, s, e: s["tasks"][0].update(id="b"), "$.workflow.specification.tasks[1].id: duplicate id 'b'"),
        (lambda d, s, e: s["tasks"][0].pop("id"), "tasks[0].id: missing id"),
        (lambda d, s, e: s["files"].pop(), "the size of file 'out' is unknown"),
        (lambda d, s, e: s["files"][0].update(sizeInBytes=-1), "$.workflow.specification.files[0].sizeInBytes"),
        (lambda d, s, e: s["files"][0].update(id="x"), "files[1].id: duplicate id 'x'"),
        (lambda d, s, e: s["tasks"][1].update(outputFiles=["x"]), "'x' is also written by 'a'"),
        (lambda d, s, e: s["tasks"][1].update(inputFiles="x"), "inputFiles: expected a list of texts"),
        (lambda d, s, e: s["tasks"][1].update(parents=["z"]), "there is no task 'z'"),
        (lambda d, s, e: e["tasks"].pop(), "there is no run of 'b'"),
        (lambda d, s, e: e["tasks"][0].update(runtimeInSeconds="long"), "tasks[0].runtimeInSeconds"),
    ],
)
def test_broken_workflows_have_their_path(change: Any, said: str) -> None:
    with pytest.raises(InstanceError) as caught:
        import_workflow(broken(change))
    assert said in str(caught.value)
    assert len(str(caught.value)) <= 300


def test_the_command_imports_a_workflow(run: Run, tmp_path: Any) -> None:
    path = tmp_path / "montage.json"
    path.write_text(json.dumps(workflow(montage())))
    made = run("import", "wfcommons", path, "--memory").document
    assert made["description"].startswith("23 tasks")
    path.write_text("{")
    run("import", "wfcommons", path).assert_refused("montage.json")

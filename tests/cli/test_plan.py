"""Test `remat plan`: output, written files, refusals and exit codes."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest

import remat
from tests.cli.helpers import Run, Save

LAYER: dict[str, Any] = {
    "name": "block",
    "repeat": 8,
    "forward_time": 2,
    "backward_time": 2,
    "weight_time": 2,
    "output_size": 1,
    "saved_size": 20,
    "weight_saved_size": 10,
    "parameter_size": 5,
    "optimizer_size": 10,
}
NET: dict[str, Any] = {
    "schema": "remat.instance/3",
    "kind": "pipeline",
    "name": "net",
    "micro_batches": 4,
    "units": {"time": "unit", "memory": "unit"},
    "backward_reads": ["saved"],
    "layers": [LAYER],
    "cluster": {"devices": [{"name": "gpu"}], "levels": [{"bandwidth": 10}]},
}
CHAIN = {
    "schema": "remat.instance/2",
    "kind": "chain",
    "units": {"time": "unit", "memory": "unit"},
    "input_size": 1,
    "stages": [
        {"forward_time": 2, "backward_time": 4, "output_size": 1, "saved_size": 4, "parameter_size": 3, "repeat": 4}
    ],
    "loss": {"time": 1},
}
FEW = ("-O", "moves=20", "-O", "zoo=false")


def test_devices_that_run_stages_together(run: Run, save: Save, tmp_path: Any) -> None:
    keys = ("forward_time", "backward_time", "weight_time", "saved_size", "weight_saved_size", "parameter_size")
    half = {key: LAYER[key] // 2 for key in keys} | {"output_size": 1, "optimizer_size": 5}
    net = save(NET | {"layers": [LAYER | {"tensor": {"2": half}}]})
    plan = str(tmp_path / "plan.json")
    asked = ("plan", net, "--devices", "4", "--tensor", "2", *FEW)
    outcome = run(*asked, "-o", plan, "--output-instance", str(tmp_path / "four.json"), "--as", "megatron")
    assert (outcome.code, outcome.err) == (0, "")
    for text in ("gpu0 to gpu1", "gpu2 to gpu3", "--tensor-model-parallel-size 2", "--pipeline-model-parallel-size 2"):
        assert text in outcome.out
    assert run("verify", str(tmp_path / "four.json"), plan).code == 0
    found = json.loads(run(*asked, "--format", "json").out)
    assert found["degrees"] == {"data": 1, "zero": 0, "keep": False, "tensor": 2}
    assert found["stages"][0]["devices"] == ["gpu0", "gpu1"]
    for wrong in ("3", "two", "-1", "0"):
        outcome = run("plan", net, "--devices", "4", "--tensor", wrong, *FEW)
        assert outcome.code == 2
        assert "--tensor" in outcome.err


def test_the_table_is_printed_and_files_are_written(run: Run, save: Save, tmp_path: Any) -> None:
    net = save(NET)
    files = {name: str(tmp_path / name) for name in ("plan.json", "two.json", "plan.svg")}
    outcome = run(
        *("plan", net, "--devices", "2", "-b", "250", *FEW, "-o", files["plan.json"]),
        *("--output-instance", files["two.json"], "--plot", files["plan.svg"]),
    )
    assert (outcome.code, outcome.err) == (0, "")
    for text in ("time of a step", "time per micro-batch", "lower bound", "stage", "recomputed", "parameters", "gpu1"):
        assert text in outcome.out
    assert run("verify", files["two.json"], files["plan.json"]).code == 0
    assert "<svg" in (tmp_path / "plan.svg").read_text()
    assert [device["count"] for device in json.loads((tmp_path / "two.json").read_text())["cluster"]["devices"]] == [2]


def test_a_plan_without_a_proof_says_how_the_search_ended(run: Run, tmp_path: Any) -> None:
    step = remat.pipeline(
        forward_time=[2] * 4, backward_time=4, output_size=1, saved_size=4, devices=2, memory=18, micro_batches=3
    )
    step.save(tmp_path / "step.json")
    shown = run("plan", tmp_path / "step.json", "-O", "moves=50")
    assert shown.code == 0
    assert re.search(r"^status +feasible$", shown.out, re.MULTILINE)
    assert re.search(r"^stopped +pipe-plan has ended, without a proof; its options moves and", shown.out, re.MULTILINE)


def test_json_has_the_stages_and_their_sums(run: Run, save: Save) -> None:
    """Sums of stages are those of the devices; every peak is within the budget."""
    document = run("plan", save(NET), "--devices", "2", "-b", "250", *FEW, "--format", "json", "--explain").document
    assert document["status"] == "feasible"
    assert document["time_per_sample"] == document["makespan"] / 4
    layers = sorted(layer for stage in document["stages"] for layer in stage["layers"])
    assert layers == list(range(1, 9))
    for device in ("gpu0", "gpu1"):
        own = [stage for stage in document["stages"] if stage["device"] == device]
        held = sum(stage[kind] for stage in own for kind in ("parameters", "gradients", "states"))
        assert {stage["peak"] for stage in own} == {held + own[0]["activations"] + own[0]["workspace"]}
        assert own[0]["peak"] <= own[0]["budget"] == 250
    assert document["binding"]["load"] <= 1
    assert all(makespan <= document["makespan"] for makespan in document["binding"]["more"].values())


def test_the_table_says_which_layers_run_again(run: Run, save: Save, tmp_path: Any) -> None:
    """Each layer with the number of its micro-batches, as the decisions count them."""
    files = [str(tmp_path / name) for name in ("two.json", "plan.json")]
    asked = ("plan", save(NET), "--devices", "2", "-b", "120", *FEW, "--output-instance", files[0], "-o", files[1])
    document = run(*asked, "--format", "json").document
    outcome = run(*asked)
    decisions = run("decisions", files[1], "--of", files[0], "--format", "json", "--by", "stage").document
    counted = Counter(layer + 1 for row in decisions for layer in row["recomputed"])
    told = {one["layer"]: one["times"] for stage in document["stages"] for one in stage["recomputations"]}
    assert told
    assert told == counted
    for stage in document["stages"]:
        assert stage["recompute"] == sum(one["times"] for one in stage["recomputations"]) / 4
    first = next(iter(told))
    assert f" in {told[first]} of 4" in outcome.out


def test_what_binds_and_flags(run: Run, save: Save) -> None:
    outcome = run("plan", save(NET), "--devices", "2", "-b", "250", *FEW, "--explain", "--as", "megatron")
    for text in (
        "is the fullest",
        "all devices are equally busy",
        "1 device more",
        "--pipeline-model-parallel-size 2",
        "# ",
    ):
        assert text in outcome.out


@pytest.mark.parametrize(
    ("placement", "said"), [("chain", "one on each"), ("interleaved", "2 on each device, inter"), ("v", "in a V")]
)
def test_arrangement_and_idle_share(run: Run, save: Save, placement: str, said: str) -> None:
    """The arrangement of the stages is said in words; the idle share is that of the steps."""
    asked = ("plan", save(NET), "--devices", "2", *FEW, "-O", f"placement={placement}")
    document = run(*asked, "--format", "json").document
    lines = run(*asked).out.splitlines()
    assert said in next(line for line in lines if line.startswith("stages "))
    loads = {stage["device"]: stage["load"] for stage in document["stages"]}
    idle = 100 * (1 - sum(loads.values()) / 2)
    shown = next(line for line in lines if line.startswith("idle ")).split()
    assert float(shown[1]) == pytest.approx(idle, abs=0.06)


def test_devices_that_are_alike_are_named_together(run: Run, save: Save) -> None:
    """Devices of equal load or equally full memory are named together."""
    layer = {"forward_time": 1, "backward_time": 2, "output_size": 0, "saved_size": 8, "parameter_size": 4}
    document = NET | {"layers": [layer | {"repeat": 4}]}
    shown = run("plan", save(document), "--devices", "2", "-b", "500", *FEW, "--explain").out
    assert "all devices are equally busy" in shown


def test_the_fastest_number_of_ranks_is_chosen(run: Run, save: Save) -> None:
    """Ranks share the micro-batches; `plan` takes the fastest option for the same number of samples."""
    outcome = run("plan", save(NET), "--devices", "4", "--data", "1,2", "--zero", "0,3", *FEW, "--format", "json")
    tried = {(one["data"], one["zero"], one["keep"]): one["makespan"] for one in outcome.document["tried"]}
    assert tried.keys() == {(1, 0, False), (2, 0, False), (2, 3, False), (2, 3, True)}
    assert outcome.document["makespan"] == min(tried.values())
    assert outcome.document["samples"] == 4


def test_a_chain_becomes_a_pipeline(run: Run, save: Save) -> None:
    """The chain becomes a pipeline of its stages, with the loss in the last backward."""
    chain = save(CHAIN)
    outcome = run("plan", chain, "--devices", "2", "--micro-batches", "3", "--link", "10", *FEW, "--format", "json")
    assert outcome.code == 0
    planned = remat.plan(CHAIN, devices=2, micro_batches=3, link=10, options={"moves": 20, "zoo": False})
    assert planned.result.makespan == outcome.document["makespan"]
    assert [layer.backward_time for layer in planned.instance.each_layer()] == [4, 4, 4, 5]
    assert planned.instance.has_parameters


def test_a_layer_larger_than_every_memory(run: Run, save: Save) -> None:
    outcome = run("plan", save(NET), "--devices", "2", "-b", "15")
    assert outcome.code == 3
    assert "smallest found" in outcome.out
    assert "block" in outcome.out


@pytest.mark.slow
def test_the_smallest_budget_depends_neither_on_the_budget_nor_on_the_clock(run: Run, save: Save) -> None:
    """The report calls it the smallest budget found, and a plan exists within it."""
    given = ("plan", save(NET), "--devices", "2", "--tensor", "1", "-O", "moves=20", "-O", "zoo=false")
    found = [run(*given, "-b", budget) for budget in ("15", "100")]
    assert [outcome.code for outcome in found] == [3, 4]
    least = [[line for line in outcome.out.splitlines() if "found " in line] for outcome in found]
    assert least[0] == least[1]
    assert least[0][0].startswith("smallest found  every device: ")
    size = int(found[1].out.partition("--budget ")[2].split()[0])
    assert f"a schedule is found with budget {size}; smaller ones may exist" in found[1].out
    assert run(*given, "-b", str(size)).code == 0


def test_numbers_of_ranks_that_divide_nothing_are_left_out(run, save):
    path = save(NET)
    out = run("plan", path, "--devices", "4", "--data", "1,2,3,5").out
    assert "tried: " in out
    assert out.count("ranks") == run("plan", path, "--devices", "4", "--data", "1,2").out.count("ranks")


TWO_TYPES = NET | {"cluster": {"devices": [{"name": "a"}, {"name": "b"}]}}


@pytest.mark.parametrize(
    ("document", "arguments", "message"),
    [
        (TWO_TYPES, ("--devices", "4"), "--devices: the cluster has devices of several types"),
        (NET, ("--devices", "4", "--data", "3"), "--data: 3 ranks do not divide the 4 devices"),
        (NET | {"micro_batches": 3}, ("--devices", "4", "--data", "2"), "--data: 2 ranks do not divide the 3 micro"),
        (NET, ("--devices", "4", "--zero", "1"), "--zero: ZeRO partitions states over ranks"),
        (NET, ("--devices", "4", "--data", "2", "--zero", "4"), "--zero: stages of ZeRO are 0 to 3"),
        (NET, ("--devices", "4", "--data", "x"), "--data: expected numbers such as 1,2,4"),
        (NET, ("--devices", "2", "--link", "0"), "$.cluster.levels[0].bandwidth"),
        (CHAIN, ("--devices", "2", "--link", "10"), "the plan of a chain also needs --micro-batches N"),
        (CHAIN, ("--devices", "2", "--micro-batches", "4"), "the plan of a chain also needs --link BANDWIDTH"),
        (CHAIN, ("--link", "10"), "also needs --devices N and --micro-batches N\n"),
        (CHAIN, (), "also needs --devices N, --micro-batches N and --link BANDWIDTH\n"),
        (NET, ("-o", "-"), "--output: name a file"),
    ],
)
def test_bad_input_is_refused(
    run: Run, save: Save, document: dict[str, Any], arguments: tuple[str, ...], message: str
) -> None:
    outcome = run("plan", save(document), *arguments)
    assert outcome.code == 2
    assert message in outcome.err


def test_what_has_no_layers(run: Run, save: Save) -> None:
    tree = {"schema": "remat.instance/1", "kind": "tree", "parent": [-1], "output_size": [1], "workspace": [1]}
    assert "has no layers to put on devices" in run("plan", save(tree)).err
    bare = {key: value for key, value in CHAIN["stages"][0].items() if key != "parameter_size"}  # type: ignore[index]
    outcome = run("plan", save(CHAIN | {"stages": [bare]}), "--devices", "2", "--link", "1", "--micro-batches", "2")
    assert outcome.code == 2
    assert "has no parameters" in outcome.err


def test_what_waits_at_a_host(run: Run, save: Save) -> None:
    """Plans with offloading are steps; their table lists the device of each layer and the bytes at the host."""
    document = NET | {"cluster": NET["cluster"] | {"host": {"bandwidth": 40}}}
    given = ("plan", save(document), "--devices", "2", "-b", "180", *FEW)
    outcome = run(*given, "--format", "json")
    stages = outcome.document["stages"]
    assert sorted(layer for stage in stages for layer in stage["layers"]) == list(range(1, 9))
    assert any(stage["host"] > 0 for stage in stages)
    assert all(stage["peak"] <= 180 for stage in stages)
    shown = run(*given, "--explain").out
    for text in ("at the host", "is the fullest", "more of memory on each device", "1 device more"):
        assert text in shown
    for label in ("devices", "links", "copies", "offloaded"):
        assert f"\n{label} " in shown
    assert "offload" in shown.partition("\noffloaded ")[2].splitlines()[0]


@pytest.mark.slow
def test_how_busy_processors_and_links_are(run: Run, save: Save, tmp_path: Any) -> None:
    """The shares are those of the plan's steps; copies that overlap with tasks are hidden."""
    document = NET | {"cluster": NET["cluster"] | {"host": {"bandwidth": 40}}}
    two, path = str(tmp_path / "two.json"), str(tmp_path / "plan.json")
    given = ("plan", save(document), "--devices", "2", "-b", "180", "-O", "moves=5", "-o", path)
    found = run(*given, "--output-instance", two, "--format", "json", "--explain").document
    report = remat.verify(two, path)
    busy, makespan = report.busy, report.makespan
    assert found["binding"]["busy"] == {name: busy[name] / makespan for name in found["binding"]["busy"]}
    assert {"gpu0", "gpu1"} < found["binding"]["busy"].keys()
    assert 0 < found["binding"]["hidden_time"] <= found["binding"]["copy_time"]


def test_static_memory_of_a_chain_is_on_each_device(run: Run, save: Save) -> None:
    """The plan is that of the chain without it, in less memory; a suggested budget includes it, and works."""
    asked = ("--devices", 2, "--micro-batches", 2, "--link", 10, *FEW, "--format", "json")
    plain = run("plan", save(CHAIN, "plain.json"), *asked, "-b", 40).document
    chain = save(CHAIN | {"static_memory": 7}, "static.json")
    found = run("plan", chain, *asked, "-b", 47).document
    assert found["stages"] == plain["stages"]
    assert run("plan", chain, *asked[:-2], "-b", 47).out.count("each device also holds 7 of static memory") == 1
    little = run("plan", chain, *asked[:-2], "-b", 12).out
    (suggested,) = (line.split()[-1] for line in little.splitlines() if line.startswith("try "))
    assert run("plan", chain, *asked, "-b", suggested).code == 0
    short = run("plan", chain, *asked[:-2], "-b", 6)
    assert short.code == 3
    assert re.search(r"^ +14 \(.*\) static memory, which is permanent$", short.out, re.MULTILINE)


def test_the_prefix_of_an_error_is_an_option_or_the_file(run: Run, save: Save) -> None:
    """No command has an option --instance: the file is named instead."""
    machine = {
        "memories": [{"name": "device"}, {"name": "host"}],
        "processors": [{"name": "gpu", "memory": "device"}],
        "links": [{"source": "device", "target": "host"}, {"source": "host", "target": "device"}],
    }
    chain = save(CHAIN | {"machine": machine, "optimizer_memory": "host"})
    asked = ("--devices", 2, "--micro-batches", 2, "--link", 10)
    outcome = run("plan", chain, *asked)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"Error: {chain}: the devices of a plan keep optimizer states, and this chain keeps")
    assert "generate it with optimizer states on the device, or set `optimizer_memory` to device" in outcome.err
    assert run("plan", chain, "--devices", "x").err.startswith("Error: Invalid value for '--devices'")
    assert run("solve", chain, "-b", "nope").err.startswith("Error: --budget: ")
    assert run("solve", chain, "-O", "x=1", "-a", "rotor").err.startswith("Error: --option: ")

"""Test `remat fit CONFIG` and `remat generate KIND --config`: output and one-line errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remat.units import format_size
from tests.cli.helpers import Run, Save

CONFIG = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4}
CONFIG |= {"intermediate_size": 160, "vocab_size": 1000, "max_position_embeddings": 512}


def test_the_split_of_a_shipped_configuration(run: Run) -> None:
    outcome = run("fit", "llama-3-8b", "--sequence", 8192, "--lora", "rank=16")
    assert outcome.code == 0
    assert "8,030,261,248 parameters, 41,943,040 trained" in outcome.out
    for label in ("parameters", "gradients", "optimizer states", "activations", "logits and loss", "optimizer step"):
        assert f"\n{label} " in outcome.out
    assert outcome.out.splitlines()[-2].endswith("fits without recomputation, with 70.4 GB (65.56 GiB)")


@pytest.mark.parametrize(
    ("options", "sets", "other"),
    [
        (("--optimizer", "adamw"), "the optimizer's step", "forward and backward need"),
        (("--optimizer", "adamw-fused"), "forward and backward", "the optimizer's step needs"),
    ],
)
def test_the_verdict_says_which_phase_sets_the_peak(run: Run, options: tuple[str, ...], sets: str, other: str) -> None:
    asked = ("fit", "llama-3-8b", "--sequence", 4096, *options)
    document = run(*asked, "--budget", "300GB", "--format", "json").document
    passes, step = document["plan"]["peak"] + document["reserve"], document["optimizer_step"] + document["reserve"]
    assert (step > passes) == (sets == "the optimizer's step")
    verdict, phases = run(*asked, "--budget", "300GB").out.splitlines()[-2:]
    assert format_size(max(passes, step), both=True) in verdict
    assert phases.strip() == f"set by {sets}; {other} {format_size(min(passes, step), both=True)}"


def test_a_file_and_json(run: Run, save: Save) -> None:
    path = save(CONFIG, "config.json")
    outcome = run("fit", path, "--format", "json", "--data", 4, "--zero", 3, "--optimizer", "adamw")
    document = outcome.document
    assert document["schema"] == "remat.fit/1"
    assert document["parameters"] == document["trained"]
    assert [row["stage"] for row in document["zero"]] == [0, 1, 2, 3]
    assert document["zero"][3]["with_recomputation"] == document["with_recomputation"]["needed"]
    assert document["without_recomputation"]["longest_sequence"] == 512
    table = run("fit", path, "--data", 4, "--zero", 3).out
    assert "512 (all positions)" in table
    assert "\nstage 3 " in table


@pytest.mark.parametrize("kind", ["chain", "dag", "pipeline"])
def test_one_sequence_is_the_default_of_all_that_read_a_configuration(run: Run, save: Save, kind: str) -> None:
    path = save(CONFIG, "config.json")
    plain, one = (run("fit", path, *more, "--format", "json").document for more in ((), ("--batch", 1)))
    assert plain == one
    made = [run("generate", kind, "--config", path, *more).document for more in ((), ("--batch", 1))]
    for document in made:
        del document["source"]
    assert made[0] == made[1]


def test_the_step_follows_the_name_of_the_optimizer(run: Run, save: Save) -> None:
    path = save(CONFIG, "config.json")

    def step(*options: str) -> int:
        document = run("fit", path, "--format", "json", *options).document
        return int(document["optimizer_step"]) - sum(document["static"].values())

    trained = run("fit", path, "--format", "json").document["trained"]
    assert step("--optimizer", "adamw") == step("--optimizer", "adam-foreach") == 4 * trained
    assert step("--optimizer", "adamw-fused") == step("--step", "fused") == step("--optimizer", "sgd-foreach") == 0
    assert step("--optimizer", "adamw-loop") == step("--optimizer", "adam", "--step", "loop") == 3 * 4 * 64 * 1000
    refused = run("fit", path, "--optimizer", "adamw-fused", "--step", "loop")
    assert (refused.code, refused.err) == (
        2,
        "Error: --step: 'loop' contradicts --optimizer adamw-fused; give the implementation once\n",
    )
    assert "known are adafactor, adafactor-foreach" in run("fit", path, "--optimizer", "adafactor-fused").err


def test_what_does_not_fit_has_its_exit_code(run: Run, save: Save) -> None:
    path = save(CONFIG, "config.json")
    assert run("fit", path, "--budget", "1MB", "--reserve", "0").code == 3
    outcome = run("fit", path, "--budget", "12MB", "--reserve", "0", "--batch", 64)
    assert outcome.code == 4
    assert "does not fit" in outcome.out
    outcome = run("fit", path, "--budget", "12MB", "--reserve", "0", "--batch", 8, "--sequence", 64)
    assert outcome.code == 0
    assert "of 4 blocks are recomputed" in outcome.out


@pytest.mark.parametrize("budget", ["24GB", "80GB"])
def test_what_would_help_works_when_pasted(run: Run, budget: str) -> None:
    document = run("fit", "llama-3-8b", "--budget", budget, "--format", "json").document
    assert document["plan"] is None
    assert document["remedies"]
    table = run("fit", "llama-3-8b", "--budget", budget).out
    for remedy in document["remedies"]:
        pasted = run("fit", "llama-3-8b", "--budget", budget, *remedy["options"].split(), "--format", "json")
        assert pasted.code == 0
        assert pasted.document["plan"]["needed"] == remedy["needed"]
        assert remedy["options"] in table


def test_a_budget_without_its_unit_and_a_file_for_another_command(run: Run, save: Save) -> None:
    path = save(CONFIG, "config.json")
    assert run("fit", path, "--budget", 24).err == "Error: --budget: 24 bytes: did you mean 24GB?\n"
    outcome = run("solve", path)
    assert outcome.code == 2
    assert "see remat fit and remat generate" in outcome.err


def test_standard_input_and_quiet(run: Run) -> None:
    outcome = run("fit", "-", "-q", stdin=json.dumps(CONFIG).encode())
    assert (outcome.code, outcome.out) == (0, "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing.json"], "there is no file and no shipped configuration 'nothing.json'"),
        (["gpt2", "--device", "H99"], "--device: there is no device 'H99'"),
        (["gpt2", "--budget", "much"], "--budget: "),
        (["gpt2", "--lora", "rank=4,w"], "--lora: 'w' is not a matrix"),
        (["gpt2", "--frozen", "w"], "--frozen 'w' is not a parameter"),
        (["gpt2", "--sequence", "5000"], "--sequence 5,000 is longer"),
        (["gpt2", "--zero", "4"], "--zero"),
        (["gpt2", "--device", "T4"], "--device: T4 has no rate for 'bf16', but for fp32, fp16"),
    ],
)
def test_one_line_for_what_cannot_be(run: Run, words: list[Any], said: str) -> None:
    run("fit", *words).assert_refused(said)


def test_the_commands_are_listed(run: Run) -> None:
    assert "remat fit config.json" in run("fit").out
    assert "--loss-chunks" in run("fit", "config.json", "--help").out


@pytest.mark.parametrize("kind", ["chain", "dag", "pipeline"])
def test_generate_takes_a_configuration_for_the_family(run: Run, save: Save, kind: str) -> None:
    path = save(CONFIG, "config.json")
    outcome = run("generate", kind, "--config", path, "--batch", 2, "--sequence", 64, "--device", "H100")
    document = outcome.document
    assert document["kind"] == kind
    assert "989.5 TFLOP/s" in document["description"]
    assert document["source"].startswith(f"generated by: remat generate {kind} --family model --config {path}")
    other = run("generate", kind, "--family", "model", f"--config={path}", "--batch", 2, "--sequence", 64)
    assert other.document["kind"] == kind
    run("generate", kind, "--config", save("{", "broken.json")).assert_refused("broken.json")


def test_architectures_of_pipelines_are_options(run: Run) -> None:
    words = ["--layers", 4, "--hidden", 64, "--heads", 4, "--kv-heads", 2, "--ffn", 96, "--vocabulary", 100]
    document = run("generate", "pipeline", "--family", "transformer", *words, "--sequence", 32, "--slices", 2).document
    assert document["layers"][1]["repeat"] == 4
    assert document["tokens"]["length"] == 32
    block = 2 * (2 * 64 * (64 + 32) + 2 * (64 + 32) + 2 * 64 * 96 + 64 + 96 + 4 * 64)
    assert document["layers"][1]["parameter_size"] == block


def test_devices_are_of_one_table(run: Run) -> None:
    one, other = (
        run("generate", "dag", "--family", "resnet", "--dtype", "bf16", "--batch", 1, *words).document["tasks"]
        for words in (["--device", "H100"], ["--flops", "989.5e12", "--bandwidth", "3.35e12"])
    )
    assert one == other
    run("generate", "dag", "--family", "resnet", "--device", "H99").assert_refused("--device")

"""Test `remat fit CONFIG` and `remat generate KIND --config`: output and one-line errors."""

from __future__ import annotations

import json
import re
import shlex
from importlib import import_module
from itertools import product, takewhile
from pathlib import Path
from typing import Any

import pytest

import remat
from remat.generate import FAMILIES
from remat.generate.devices import devices
from remat.generate.models.chains import chain
from remat.generate.models.instances import workload
from remat.generate.models.memory import estimate, read_training
from remat.generate.optimizers import NAMES
from remat.plugin.selection import candidates
from remat.solving.problem_setup import make_problem
from tests.cli.helpers import Run, Save

CONFIG = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4}
CONFIG |= {"intermediate_size": 160, "vocab_size": 1000, "max_position_embeddings": 512}

pytestmark = pytest.mark.usefixtures("searches")
in_full = pytest.mark.parametrize("searches", ["brief", pytest.param("full", marks=pytest.mark.slow)], indirect=True)
"""Tests of what the searches find: in the slow runs, they work as long as they do for a user."""


def test_the_split_of_a_shipped_configuration(run: Run) -> None:
    outcome = run("fit", "llama-3-8b", "--sequence", 8192, "--lora", "rank=16")
    assert outcome.code == 0
    assert "8,030,261,248 parameters, 41,943,040 trained" in outcome.out
    for label in ("parameters", "gradients", "optimizer states", "activations", "logits and loss", "optimizer step"):
        assert f"\n{label} " in outcome.out
    assert verdict_of(outcome.out)[0] == "fits without recomputation, with 70.4 GB (65.56 GiB)"


def verdict_of(table: str) -> list[str]:
    """Return the lines of the verdict, which stand before the first blank line."""
    head = list(takewhile(bool, table.splitlines()))
    (first,) = (place for place, line in enumerate(head) if line.startswith("verdict "))
    more = takewhile(lambda line: line.startswith(" "), head[first + 1 :])
    return [line.removeprefix("verdict").strip() for line in (head[first], *more)]


@pytest.mark.parametrize(
    ("options", "sets", "other"),
    [
        (
            ("--optimizer", "adamw"),
            "step foreach, PyTorch's default; step fused takes none",
            "forward and backward",
        ),
        (("--optimizer", "adamw-foreach"), "step foreach; step fused takes none", "forward and backward"),
        (("--optimizer", "adamw-fused"), "", "the optimizer's step needs"),
        (("--optimizer", "adafactor-foreach"), "step foreach; step loop takes 4.203 GB", "forward and backward"),
    ],
)
def test_the_verdict_says_which_phase_sets_the_peak(run: Run, options: tuple[str, ...], sets: str, other: str) -> None:
    """The optimizer's step with its temporary part, and the implementation that takes the least, or the passes."""
    asked = ("fit", "llama-3-8b", "--sequence", 4096, *options)
    document = run(*asked, "--budget", "300GB", "--format", "json").document
    passes, step = document["plan"]["peak"] + document["reserve"], document["optimizer_step"] + document["reserve"]
    assert (step > passes) == bool(sets)
    verdict, phases = verdict_of(run(*asked, "--budget", "300GB").out)
    assert gigabytes(max(passes, step)) in verdict
    temporary = gigabytes(document["optimizer_step_temporary"])
    why = f"the optimizer's step, which takes {temporary} for a moment ({sets})"
    why = why if sets else f"forward and backward, in {document['plan']['moment']}"
    assert phases.startswith(f"set by {why}; {other}")
    assert phases.endswith(f" {gigabytes(min(passes, step))}")


def gigabytes(size: int) -> str:
    return f"{size / 1e9:.4g} GB"


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
    assert "\nlevel 3 " in table


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
        "Error: --step 'loop' contradicts optimizer adamw-fused; give the implementation once\n",
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


HOST = "a host; each layer is updated right after its backward, so no clipping by the norm of all gradients"
SMALL = ("--batch", 2, "--sequence", 64, "--reserve", "1MB", "--device", "A10", "--budget", "5MB")


@pytest.mark.parametrize(
    "asked",
    [
        SMALL,
        pytest.param(("llama-3-8b", "--budget", "24GB"), marks=pytest.mark.slow),
        pytest.param(("llama-3-8b", "--budget", "80GB"), marks=pytest.mark.slow),
    ],
    ids=["small", "24GB", "80GB"],
)
def test_what_would_help_is_sorted_and_works_when_pasted(run: Run, save: Save, asked: tuple[Any, ...]) -> None:
    """This device before others, the training as it is before another; within a kind, the least time."""
    words = (save(CONFIG, "config.json"), *asked) if asked is SMALL else asked
    document, table = run("fit", *words, "--format", "json").document, run("fit", *words).out
    remedies = document["remedies"]
    assert document["plan"] is None
    kinds = list(dict.fromkeys(remedy["kind"] for remedy in remedies))
    assert kinds[0] in ("the same training", HOST)
    assert [kind for kind in kinds if kind != "the same training"] == [HOST, "a changed training", "more devices"]
    assert [kinds.index(remedy["kind"]) for remedy in remedies] == sorted(kinds.index(one["kind"]) for one in remedies)
    assert [remedy["kind"] for remedy in remedies if host(remedy)] == [HOST]
    for kind in kinds:
        times = [remedy["extra_time_share"] for remedy in remedies if remedy["kind"] == kind]
        assert times == sorted(times)
    for remedy in remedies:
        assert remedy["options"] in table
        assert ("--data" in remedy["options"]) == (remedy["kind"] == "more devices")
        changed = any(word in remedy["options"] for word in ("--lora", "--quantize", "--optimizer", "--precision"))
        assert changed == (remedy["kind"] == "a changed training")
        assert not changed or remedy["changes"] in table
        if host(remedy):
            continue
        pasted = run("fit", *words, *remedy["options"].split(), "--format", "json")
        assert pasted.code == 0
        assert pasted.document["plan"]["needed"] == remedy["needed"]
        assert pasted.document["plan"]["recompute_share"] == remedy["extra_time_share"]


def test_of_one_change_the_fastest_combination_is_listed(run: Run, save: Save) -> None:
    remedies = run("fit", save(CONFIG, "config.json"), *SMALL, "--format", "json").document["remedies"]
    for remedy in remedies:
        if host(remedy):
            continue
        words = remedy["options"].split()
        given = {
            name.removeprefix("--").replace("-", "_"): text for name, text in zip(words[::2], words[1::2], strict=True)
        }
        own = {name: given[name] for name in ("lora", "quantize") if name in given}
        training = {name: given[name] for name in ("precision", "optimizer") if name in given}
        training |= {name: int(given[name]) for name in ("data", "zero") if name in given}
        times = []
        for chunks, step in product((1, 16), (None, "fused")):
            work = workload(config=CONFIG, batch=2, sequence=64, device="A10", loss_chunks=chunks, **own)
            found = estimate(work, read_training(step=step, **training), 4_000_000)
            if found.chosen is not None:
                times.append((found.total_time + found.chosen.time, found.chosen.time / found.total_time))
        assert min(times)[1] == remedy["extra_time_share"]


def host(remedy: dict[str, Any]) -> bool:
    return "at_host" in remedy


@in_full
def test_what_would_help_at_the_host_works_when_pasted(run: Run, save: Save, tmp_path: Path) -> None:
    path, made = save(CONFIG, "config.json"), str(tmp_path / "made.json")
    asked = SMALL[:-2]
    (remedy,) = filter(host, run("fit", path, *SMALL, "--format", "json").document["remedies"])
    assert "31.5 GB/s to the host" in remedy["changes"]  # of an A10, on PCI Express 4
    refused = run("fit", path, *SMALL, *remedy["options"].split())
    refused.assert_refused("remat generate chain --config", "remat solve FILE --budget 5MB")
    assert run("generate", "chain", "--config", path, *asked, *remedy["options"].split(), "-o", made).code == 0
    solved = run("solve", made, "--budget", "device=5MB", "--format", "json")
    assert solved.code == 0
    assert solved.document["overhead"] <= remedy["extra_time_share"] + 1e-9


@in_full
@pytest.mark.parametrize("budget", ["4MB", "5MB"])
def test_offloading_is_planned_by_all_algorithms_that_auto_would_ask(run: Run, save: Save, budget: str) -> None:
    """No installed algorithm that `auto` runs by default finds a faster schedule with its own work limits."""
    path = save(CONFIG, "config.json")
    (remedy,) = filter(host, run("fit", path, *SMALL[:-1], budget, "--format", "json").document["remedies"])
    options: dict[str, Any] = {
        "config": CONFIG,
        "batch": 2,
        "sequence": 64,
        "reserve": 10**6,
        "device": "A10",
        "loss_chunks": 16,
    }
    instance = remat.load(chain(**options, parameters="any", states="any"))
    problem = make_problem(instance, budget={"device": budget})
    found = {
        one.algorithm.name: remat.solve(instance, budget={"device": budget}, algorithm=one.algorithm.name).overhead
        for one in candidates(problem, timed=False).asked
    }
    assert len({overhead for overhead in found.values() if overhead is not None}) > 1
    assert remedy["extra_time_share"] == min(overhead for overhead in found.values() if overhead is not None)


OPTIONS_OF_ANSWERS = {"budget", "host", "output", "plot", "format_", "quiet", "verbose", "help", "config"}


def test_every_option_of_fit_is_one_of_generate_with_the_same_words() -> None:
    from click import Context, Option

    fit = import_module("remat.cli.fit_model").command
    chain = import_module("remat.cli.generate").command.commands["chain"]
    context = Context(chain)
    context.meta["remat.family"] = FAMILIES["chain/model"]
    known = {option.name: option for option in chain.get_params(context)}
    for option in fit.get_params(Context(fit)):
        if option.name in OPTIONS_OF_ANSWERS or "--help" in option.opts:  # -h depends on the parent command
            continue
        assert isinstance(option, Option)
        other = known[option.name]
        assert isinstance(other, Option)
        assert (option.opts, option.help, option.multiple) == (other.opts, other.help, other.multiple)


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--step", "fused", "--precision", "pure", "--loss-chunks", 16),
        ("--data", 4, "--zero", 3),
        ("--lora", "rank=4", "--frozen", "embedding", "--frozen", "head"),
        ("--reserve", "2MB", "--optimizer", "adamw8", "--no-flash"),
    ],
)
def test_the_instance_of_fit_is_that_of_generate_and_fits_where_fit_says(
    run: Run, save: Save, tmp_path: Path, options: tuple[Any, ...]
) -> None:
    path, made = save(CONFIG, "config.json"), str(tmp_path / "made.json")
    asked = ("--batch", 2, "--sequence", 64, "--reserve", "1MB", *options)
    needed = run("fit", path, *asked, "--format", "json", "-o", made).document["without_recomputation"]["needed"]
    assert json.loads(Path(made).read_text()) == run("generate", "chain", "--config", path, *asked).document
    solved = run("solve", made, "--budget", needed, "-q", "--time-limit", "5s", "--format", "json")
    assert solved.document["overhead"] == pytest.approx(0, abs=1e-12)
    less = run("solve", made, "--budget", needed - 1, "-q", "--time-limit", "5s", "--format", "json")
    assert less.code != 0 or less.document["overhead"] > 1e-12


def test_the_table_names_the_moment_of_its_figures(run: Run) -> None:
    asked = ("fit", "llama-3-8b", "--budget", "24GB", "--lora", "rank=16", "--loss-chunks", 16)
    table = run(*asked).out
    assert re.search(r"\nat the peak +without recomputation  every block recomputed\n", table)
    assert re.search(r"\nreached in +the loss +the backward of block 32\n", table)
    document = run(*asked, "--format", "json").document["with_recomputation"]
    assert (document["logits"], document["moment"]) == (0, "the backward of block 32")


@pytest.mark.parametrize(("budget", "shown", "absent"), [("20MB", "20 MB", "iB"), ("20MiB", "20 MiB", " MB")])
def test_sizes_have_the_unit_that_was_typed(
    run: Run, save: Save, tmp_path: Path, budget: str, shown: str, absent: str
) -> None:
    """In the table, in the picture, and in those of the solve that follows."""
    drawn, made, solved = (tmp_path / name for name in ("memory.svg", "made.json", "time.svg"))
    asked = ("--batch", 2, "--sequence", 64, "--reserve", "5MB", "--plot", drawn, "-o", made)
    fitted = run("fit", save(CONFIG, "config.json"), "--budget", budget, *asked)
    assert f"budget            {shown}," in fitted.out
    assert absent not in fitted.out
    run("solve", made, "--budget", budget, "-q", "-a", "rotor", "--plot", solved)
    for picture in (drawn, solved):
        text = picture.read_text()
        assert f"budget {shown}" in text
        assert f"memory ({shown[3:]})" in text
        assert absent not in text


def test_files_of_fit_are_checked_before_the_work(run: Run, save: Save, tmp_path: Path) -> None:
    run("fit", "gpt2", "-o", "-").assert_refused("--output: the table goes to standard output")
    run("fit", "gpt2", "--plot", "memory.txt").assert_refused("is not a plot")
    run("fit", "gpt2", "--plot", tmp_path / "a.html").assert_refused("is not a plot")
    run("fit", "-", "-o", tmp_path / "a.json").assert_refused("save the configuration")
    run("fit", "t5-base", "-o", tmp_path / "a.json").assert_refused("no chain")


def test_a_budget_without_its_unit_and_a_file_for_another_command(run: Run, save: Save) -> None:
    path = save(CONFIG, "config.json")
    assert run("fit", path, "--budget", 24).err == "Error: --budget: 24 bytes: did you mean 24GB?\n"
    assert run("fit", path, "--reserve", 2).err == "Error: --reserve: 2 bytes: did you mean 2GB?\n"
    assert run("fit", path, "--reserve", "100kB", "--format", "json").document["reserve"] == 100_000
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
        (["gpt2", "--device", "H99"], "'--device': 'H99' is not one of 'V100', 'T4'"),
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


@pytest.mark.parametrize("words", [("fit", "config.json"), ("generate", "chain", "--config", "config.json")])
def test_the_help_lists_devices_and_optimizers_in_lines_that_fit(run: Run, words: tuple[str, ...]) -> None:
    text = run(*words, "--help").out
    found = " ".join(text.split())
    assert f"One of {', '.join(devices())}." in found
    assert f"{', '.join(NAMES)}, or none" in found
    assert max(map(len, text.splitlines())) <= 120


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


def test_the_network_between_ranks_is_an_option(run: Run, save: Save) -> None:
    path = save(CONFIG, "config.json")
    words = ("generate", "chain", "--config", path, "--data", 4, "--zero", 3, "--states", "device")
    made, other = (run(*words, *more).document for more in ((), ("--network", "50GB/s")))
    for document, rate in ((made, 25), (other, 50)):
        (link,) = (link for link in document["machine"]["links"] if link["channel"] == "network")
        assert link["bandwidth"] == rate * 10**9
        assert f"4 ranks, ZeRO 3, {rate} GB/s between them" in document["description"]
    assert "50 GB (46.57 GiB) per second, channel network" in run("show", save(other)).out
    run(*words[:-6], "--network", "1GB/s").assert_refused("--network is for parameters that are values")
    run(*words[:-6], "--states", "device", "--network", "1GB/s").assert_refused("--network is the bandwidth between")


@pytest.mark.parametrize(("data", "zero"), [(2, 0), (4, 1), (3, 2), (4, 3)])
def test_the_network_between_ranks_changes_the_answer(
    run: Run, save: Save, tmp_path: Path, data: int, zero: int
) -> None:
    """The bytes are those that a schedule of the same ranks sends, without gathers that it may spare."""
    path, made = save(CONFIG, "config.json"), str(tmp_path / "made.json")
    words = (path, "--batch", 2, "--sequence", 64, "--data", data, "--zero", zero)
    found = {}
    for rate in (1, 50):
        asked = ("fit", *words, "--network", f"{rate}GB/s")
        found[rate] = run(*asked, "--format", "json").document["exchanges"]
        assert found[rate]["time"] == found[rate]["sent"] / (rate * 10**9)
        (line,) = (line for line in run(*asked).out.splitlines() if line.startswith("exchanges "))
        assert f" at {rate} GB/s, partly overlapped with computation; the other times" in line
    run("generate", "chain", "--config", *words, "--states", "device", "-o", made)
    result = remat.solve(remat.load(made), algorithm="zero", options={"prefetch": False})
    assert result.report is not None
    sent = sum(result.report.transferred.values())
    gathered_twice = 1064000 * 2 * (data - 1) // data if zero == 3 else 0
    assert sent - 100 <= found[50]["sent"] <= sent + gathered_twice


def test_a_network_needs_no_ranks_yet(run: Run, save: Save, tmp_path: Path) -> None:
    """It is that of the suggested ranks; neither the written instance nor the commands for one rank have it."""
    path, made = save(CONFIG, "config.json"), tmp_path / "made.json"
    shown = run("fit", path, *SMALL, "--network", "1GB/s", "--link", "8GB/s", "-o", made).out
    assert re.search(r"--data \d+ --zero 3.*: each rank sends .* at 1 GB/s, partly", shown)
    assert "--network" not in shown
    assert json.loads(made.read_text())["kind"] == "chain"
    assert "--link 8000000000 --device A10 --parameters any" in shown


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


@pytest.mark.parametrize(
    ("words", "device", "said"),
    [
        (
            ("--budget", "24GB"),
            "RTX-4090",
            "(24 GB), the fastest listed device of this size; --device names another (A",
        ),
        (("--budget", "16GB", "--dtype", "fp16"), "V100", "(16 GB), the fastest listed device of this size"),
        (
            ("--budget", "16GB"),
            "H100",
            "no listed device has this memory, so times are those of H100 (80 GB)",
        ),  # those of 16 GB have no rate for bf16
        (("--budget", "32GB"), "RTX-5090", "(32 GB), the fastest"),
        (("--budget", "12GB"), "H100", "no listed device has this memory, so times are those of H100 (80 GB)"),
        (("--budget", "75GB"), "H100", ""),
        (("--budget", "24GB", "--device", "L4"), "L4", ""),
        ((), "H100", ""),
    ],
)
def test_without_a_device_the_fastest_with_the_budget_is_assumed(
    run: Run, save: Save, tmp_path: Path, words: tuple[str, ...], device: str, said: str
) -> None:
    """The step names the device of its times; the instance, and the printed commands, have the same one."""
    made = tmp_path / "made.json"
    asked = ("fit", save(CONFIG, "config.json"), "--sequence", 64, *words)
    table = run(*asked, "-o", made).out
    step = next(line for line in table.splitlines() if line.startswith("step "))
    assert step.endswith(f", times of {device}" if said else f", {device}")
    assert (said in table) if said else ("times are those" not in table)
    dtype = "fp16" if "fp16" in words else "bf16"
    assert f"{devices()[device]['flops'][dtype] / 1e12:g} TFLOP/s" in json.loads(made.read_text())["description"]
    assert run(*asked, "--format", "json").document["device"] == device


def test_the_commands_of_a_remedy_name_the_assumed_device(run: Run, save: Save) -> None:
    path = save(CONFIG, "config.json")
    table = run("fit", path, "--budget", "24GB", "--host", "256GB", "--reserve", "23.996GB").out
    assert (
        f"remat generate chain --config {path} --reserve 23996000000 --device RTX-4090 --parameters any --states any"
        in table
    )
    assert "remat solve step.json -b device=24GB -b host=256GB" in table
    assert "in the type of the parameters: remat fit torch MODULE:FACTORY --costs roofline:RTX-4090-bf16 " in table
    assert "the host, which updates at 0.0625 of the device's speed" in table
    assert "--budget 24GB --optimizer adam --host 256GB --link 31.5GB/s --optimizer-memory host" in table


def test_the_remedy_at_the_host_names_its_commands(run: Run, save: Save) -> None:
    path = save(CONFIG, "config.json")
    shown = run("fit", path, "--budget", "4MB", "--reserve", "0").out.splitlines()
    options = "--reserve 0 --parameters any --states any --loss-chunks 16"
    assert f"remat generate chain --config {path} {options} -o step.json" in map(str.strip, shown)
    assert "remat solve step.json -b device=4MB" in map(str.strip, shown)


PASTED: dict[str, tuple[Any, ...]] = {
    "no host": (),
    "host": ("--host", "30MB"),
    "rates": ("--link", "8GB/s", "--network", "1GB/s", "--host-speed", 0.5),
    "ranks": ("--data", 2, "--zero", 1, "--network", "5GB/s", "--host", "30MB", "--budget", "3MB"),
    "sums": ("--accumulation", "fp32", "--optimizer", "adamw-fused", "--no-master"),
    "batch": ("--batch", 2, "--sequence", 64, "--no-flash", "--reserve", "100kB", "--budget", "3MB"),
}


@in_full
@pytest.mark.parametrize("host", PASTED.values(), ids=PASTED)
def test_printed_commands_find_a_schedule_that_is_no_slower(
    run: Run, save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: tuple[str, ...]
) -> None:
    """The remedy at the host names the commands that solve it: pasted, they give a schedule that takes no longer."""
    path = save(CONFIG, "config.json")
    monkeypatch.chdir(tmp_path)  # the commands write a file
    fitted = run("fit", path, "--budget", "4MB", "--reserve", "0", *host)
    shown = fitted.out.splitlines()
    words = [shlex.split(line) for line in shown if line.strip().startswith("remat ")]
    assert [command[1] for command in words] == ["generate", "solve"]
    assert ("host=30MB" in words[1]) == ("--host" in host)
    run(*words[0][1:])
    answer = run(*words[1][1:])
    assert answer.code == 0
    (cost,) = (line for line in shown if line.strip().startswith("needs ") and "at the host" in line)
    assert fitted.code == (0 if "--host" in host else 3)
    assert cost.partition("at most ")[2] in verdict_of(fitted.out)[0]
    overhead = next(line for line in answer.out.splitlines() if line.startswith("overhead"))
    taken, most = (float(re.findall(r"\+([0-9.]+) %", line)[0]) for line in (overhead, cost))
    assert taken <= most


@in_full
def test_a_host_decides_whether_the_step_fits(run: Run, save: Save) -> None:
    """It fits with what the remedy needs at the host, and some more for another path of the search."""
    asked = ("fit", save(CONFIG, "config.json"), *SMALL)
    (remedy,) = filter(host, run(*asked, "--format", "json").document["remedies"])
    needed = remedy["at_host"] * 6 // 5
    enough = run(*asked, "--host", needed, "--format", "json")
    assert enough.code == 0
    assert enough.document["host"] == {"budget": needed, "fits": True}
    (same,) = filter(host, enough.document["remedies"])
    assert same["at_host"] <= needed
    assert same["commands"][1].endswith(f"-b host={needed}")
    little = run(*asked, "--host", "200kB", "--format", "json")
    assert little.document["host"]["fits"] is False
    assert [one["kind"] for one in little.document["remedies"]][-1].startswith("a larger host; ")
    assert run(*asked, "--host", "30").err == "Error: --host: 30 bytes: did you mean 30GB?\n"


CHEAP = "does not fit as asked; fits with --loss-chunks 16: "
ALONE = "in the device alone, every block recomputed needs "


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--host", "200kB"), 3, ["does not fit with a host of 200 kB; a host of ", ALONE]),
        (("--host", "30MB"), 0, ["fits with a host of 30 MB, not in the device alone: ", ALONE]),
        ((), 3, ["does not fit in the device alone; a host of ", ALONE]),
        (("--host", "10kB", "--budget", "1.1MB"), 3, ["does not fit; no schedule was found that offloads to ", ALONE]),
        (("--budget", "7MB", "--step", "fused"), 4, [CHEAP, "does not fit in the device alone as asked; it ", ALONE]),
        (
            ("--budget", "6.4MB", "--step", "fused", "--batch", 4),
            4,
            ["does not fit in the device alone; a host of ", ALONE],
        ),
        (("--host", "30MB", "--budget", "7MB", "--step", "fused"), 0, ["fits with a host of 30 MB, not", CHEAP, ALONE]),
        (
            ("--host", "30MB", "--lora", "rank=2", "--budget", "2MB"),
            4,
            ["does not fit; no schedule was found that offloads activations (all else stays ", ALONE],
        ),
        (("--budget", "500MB", "--host", "30MB"), 0, ["fits without recomputation, with "]),
    ],
)
def test_the_first_lines_are_the_whole_truth(
    run: Run, save: Save, words: tuple[str, ...], code: int, said: list[str]
) -> None:
    """With what the step fits stands before the table, with its cost; and then why not without."""
    outcome = run("fit", save(CONFIG, "config.json"), *SMALL, *words)
    assert outcome.code == code
    *told, _ = verdict_of(outcome.out)
    assert len(told) == len(said)
    for line, start in zip(told, said, strict=True):
        assert line.startswith(start)
        assert ("fits" not in start and "a host of" not in start) or "without recomputation" in line or "found" in start
    assert run("fit", save(CONFIG, "config.json"), *SMALL, *words, "-q").out == ""


@in_full
def test_ranks_may_offload_too(run: Run, save: Save, tmp_path: Path) -> None:
    made = str(tmp_path / "made.json")
    asked = (*SMALL[:-1], "3MB", "--data", 2, "--zero", 2)
    path = save(CONFIG, "config.json")
    (remedy,) = filter(
        host, run("fit", path, *asked, "--host", "30MB", "-o", made, "--format", "json").document["remedies"]
    )
    assert "device's speed, both of one rank; exchanges at 25 GB/s" in remedy["changes"]
    assert json.loads(Path(made).read_text())["sharding"] == {"data": 2, "zero": 2}
    solved = run("solve", made, "-b", "device=3MB", "-b", "host=30MB", "--format", "json").document
    assert solved["overhead"] <= remedy["extra_time_share"] + 1e-9
    assert "plan that PyTorch runs" not in run("fit", path, *asked, "--host", "30MB").out


def test_the_instance_of_a_step_that_needs_the_host_offloads(run: Run, save: Save, tmp_path: Path) -> None:
    """It is the one of the printed command; without a host, or where everything fits, nothing offloads."""
    path, made = save(CONFIG, "config.json"), tmp_path / "made.json"
    asked = ("fit", path, "--reserve", "1MB")
    run(*asked, "--budget", "5MB", "--host", "30MB", "-qo", made)
    words = ("--reserve", "1MB", "--parameters", "any", "--states", "any", "--loss-chunks", 16)
    assert json.loads(made.read_text()) == run("generate", "chain", "--config", path, *words).document
    for more in (("--budget", "5MB"), ("--budget", "500MB", "--host", "30MB")):
        run(*asked, *more, "-qo", made)
        assert "parameter_memory" not in json.loads(made.read_text())


def test_a_batch_of_none_is_without_a_host(run: Run, save: Save) -> None:
    asked = ("fit", save(CONFIG, "config.json"), "--budget", "5MB", "--reserve", "1MB")
    table = run(*asked, "--sequence", 64).out
    for label in ("largest batch", "longest sequence"):
        (row,) = (line for line in table.splitlines() if line.startswith(label))
        assert row.split("  ")[-1] == "none without a host"
    assert "\nneeded, with reserve  " in table
    assert ", of these 1.074 GB (1 GiB) in reserve" in run("fit", "gpt2").out
    assert "none without" not in run(*asked, "--sequence", 64, "--lora", "rank=2").out


def test_the_bandwidth_to_the_host_changes_the_remedy(run: Run, save: Save) -> None:
    asked = ("fit", save(CONFIG, "config.json"), *SMALL, "--format", "json")
    slow, fast = (
        next(filter(host, run(*asked, "--link", link).document["remedies"])) for link in ("0.1GB/s", "60GB/s")
    )
    assert "0.1 GB/s to the host" in slow["changes"]
    assert slow["extra_time_share"] > fast["extra_time_share"]
    assert "--link 100000000" in slow["commands"][0]


def test_the_default_budget_of_a_device_is_pasted(run: Run, save: Save) -> None:
    """A budget that nobody has typed is no rounded figure in the commands."""
    shown = run("fit", save(CONFIG, "config.json"), "--reserve", "79.996GB").out
    assert "remat solve step.json -b device=80GB" in shown


def test_eight_bit_states_are_never_said_to_have_another_type(run: Run) -> None:
    shown = run("fit", "llama-3-8b", "--sequence", "4096", "--budget", "80GB", "--optimizer", "adamw8").out
    assert "no fp32 copy of the parameters" in shown
    assert "optimizer states in" not in shown

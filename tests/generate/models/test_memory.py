"""Test the memory of configured models: peaks, published formulas, and the effect of options."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

import remat
from remat.generate import generate
from remat.generate.models.architecture import Experts
from remat.generate.models.chains import chain
from remat.generate.models.instances import Workload, stages_of, workload
from remat.generate.models.memory import (
    Rows,
    Training,
    estimate,
    fits,
    largest_batch,
    longest_sequence,
    peak_of,
    read_training,
    rows_of,
    static_of,
)
from remat.generate.models.reading import read_model, shipped
from remat.generate.networks.transformer import activation_bytes

TINY = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4}
TINY |= {"num_key_value_heads": 2, "intermediate_size": 160, "vocab_size": 1000, "max_position_embeddings": 512}
ENCODERS = {"t5-base", "bart-base", "whisper-small"}


def rows(work: Workload) -> Rows:
    return rows_of(stages_of(work), work)


def steps(figures: Rows, recomputed: int) -> list[dict[str, Any]]:
    """The schedule whose peak `peak_of` gives: every value is freed after its last use."""
    left, again = recomputed, []
    for block in figures.block:
        again.append(block and left > 0)
        left -= block
    count = len(again)
    listed: list[dict[str, Any]] = [{"run": f"F{'' if a else 'e'}{i}"} for i, a in enumerate(again, 1)]
    listed.append({"run": "loss"})
    for i in range(count, 0, -1):
        if again[i - 1]:
            listed.append({"run": f"Fe{i}"})
        dropped = [f"x{i}"] if figures.output[i - 1] else []
        dropped += [f"s{i}"] if figures.saved[i - 1] else []
        dropped += [f"y{i}"] if figures.gradient[i - 1] else []
        dropped += [f"x{i - 1}"] if i > 1 and again[i - 2] else []
        listed.append({"run": f"B{i}", "drop": dropped})
    return listed


@pytest.mark.parametrize("recomputed", [0, 1, 3, 4])
@pytest.mark.parametrize(
    "options",
    [{}, {"lora": "rank=4"}, {"loss_chunks": 4}, {"frozen": "layers.[01].*,embedding"}, {"flash": False}],
    ids=["plain", "lora", "chunks", "frozen", "scores"],
)
def test_peaks_are_the_verifiers(recomputed: int, options: dict[str, Any]) -> None:
    options = {"batch": 3, "sequence": 64, **options}
    instance = remat.load(generate_of(options))
    work = workload(config=TINY, **options)
    figures = rows(work)
    blocks = sum(figures.block)
    count = min(recomputed, blocks)
    report = remat.verify(instance, {"schema": "remat.schedule/1", "steps": steps(figures, count)})
    assert report.ok, report.violations[:2]
    assert report.peak_memory["memory"] == peak_of(figures, count, chunked=work.chunked).size


def generate_of(options: dict[str, Any]) -> dict[str, Any]:
    return chain(config=TINY, parameters="none", reserve=0, **options)


@pytest.mark.parametrize("name", [name for name in shipped() if name not in ENCODERS])
def test_chains_of_all_models_have_the_memory_of_their_parameters(name: str) -> None:
    made = generate("chain", "model", config=name, batch=1, sequence=64, reserve=10**9)
    loaded = remat.load(made)
    work = workload(config=name, batch=1, sequence=64)
    assert loaded.static_memory == 16 * work.model.parameters + 10**9  # 2 + 2 + 12 bytes, and the reserve
    found = estimate(work, Training())
    assert found.static.total + 10**9 == loaded.static_memory


@pytest.mark.parametrize(
    ("training", "tuning"),
    [
        ({}, {}),
        ({"step": "fused"}, {}),
        ({"optimizer": "adamw-loop", "precision": "pure"}, {"loss_chunks": 4}),
        ({"optimizer": "adam8"}, {}),
        ({"optimizer": "sgd", "accumulation": "fp32"}, {}),
        ({"optimizer": "none"}, {}),
        ({"master": False}, {"lora": "rank=4"}),
        ({"data": 4, "zero": 1}, {}),
        ({"data": 4, "zero": 2}, {"frozen": "layers.[01].*"}),
        ({"data": 4, "zero": 3, "step": "foreach"}, {}),
    ],
)
def test_the_chain_of_the_same_options_needs_the_same_memory(training: dict[str, Any], tuning: dict[str, Any]) -> None:
    """Every option of `remat fit` that changes bytes changes the instance by as many, the optimizer's step included."""
    asked = {"batch": 1, "sequence": 64, **tuning}
    work = workload(config=TINY, **asked)
    found = estimate(work, read_training(**training))
    instance = remat.load(chain(config=TINY, reserve=5000, **training, **asked))
    figures = rows(work)
    for count in (0, found.blocks):
        report = remat.verify(instance, {"schema": "remat.schedule/1", "steps": steps(figures, count)})
        assert report.ok, report.violations[:2]
        needed = found.needed(peak_of(figures, count, chunked=work.chunked))
        assert report.peak_memory["memory"] == needed + 5000


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({"optimizer": "adamw-fused", "step": "loop"}, "step 'loop' contradicts optimizer adamw-fused"),
        ({"optimizer": "adafactor", "step": "fused"}, "known are adafactor, adafactor-foreach"),
        ({"precision": "pure", "master": True}, "master contradicts precision pure"),
        ({"zero": 2}, "zero 2 partitions memory over several ranks"),
        ({"zero": 4, "data": 2}, "zero must be at most 3"),
        ({"lora": "rank=4", "parameters": "host"}, "parameters 'host' is for models that are trained as a whole"),
        ({"states": "host", "step": "foreach"}, "parameters 'device' are updated stage by stage"),
        ({"states": "host", "parameters": "static"}, "states is for parameters that are values"),
        ({"host_speed": 0.5}, "host_speed is for parameters that are values"),
        ({"link": 0}, "link must be positive"),
        ({"parameters": "host", "optimizer": "none"}, "optimizer none has no updates"),
    ],
)
def test_options_without_a_meaning_are_refused_with_the_reason(training: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        chain(config=TINY, sequence=64, **training)
    assert said in str(caught.value)


@pytest.mark.parametrize("training", [{}, {"precision": "pure", "step": "fused"}, {"data": 2, "zero": 1}])
def test_parameters_as_values_have_the_bytes_of_static_ones(training: dict[str, Any]) -> None:
    """Per stage as in total; the link is that of the device's generation of PCI Express."""
    static = estimate(workload(config=TINY, sequence=64), replace(read_training(**training), data=1, zero=0)).static
    made = remat.load(chain(config=TINY, sequence=64, reserve=7, states="host", device="RTX-4090", **training))
    assert made.static_memory == 7
    stages = [stage for stage in made.stages for _ in range(stage.repeat)]
    assert sum(stage.parameter_size for stage in stages) == static.parameters
    assert sum(stage.parameter_gradient_bytes for stage in stages) == static.gradients
    assert sum(stage.optimizer_size for stage in stages) == static.states
    assert (made.parameter_memory, made.optimizer_memory) == ("device", "host")
    assert made.master_copy == ("precision" not in training)
    assert made.machine is not None
    assert {link.bandwidth for link in made.machine.links if "host" in (link.source, link.target)} == {31_500_000_000}


def test_a_classical_block_saves_what_the_literature_says() -> None:
    """Korthikanti et al. 2022: s b h (34 + 5 a s / h) bytes, with dropout and with stored scores or without."""
    batch, sequence, hidden, heads = 2, 128, 768, 12
    for flash in (True, False):
        work = workload(config="gpt2", batch=batch, sequence=sequence, flash=flash)
        figures = rows(work)
        saved = figures.saved[1] + figures.output[0]  # with the block's input
        wanted = activation_bytes(batch=batch, sequence=sequence, hidden=hidden, heads=heads, flash=flash)
        statistics = 4 * batch * sequence * (2 * 2)  # of both norms, which the paper neglects
        # The paper saves the softmax, its mask and its result; here attention has no dropout: 2 bytes of 5 are left.
        scores = 0 if flash else -3 * heads * sequence**2 * batch
        # In tiles, the backward of attention also reads its output, which is saved once, and a number per row.
        per_row = 4 * batch * sequence * heads if flash else 0
        assert saved == wanted + statistics + scores + per_row


def saved_by_a_block(name: str, stack: int = 0) -> int:
    """Bytes that the last block of a stack saves, without the input, of one sequence of 64 tokens."""
    stages = stages_of(workload(config=name, batch=1, sequence=64))
    own = [row for row, parts in zip(stages.rows, stages.parts, strict=True) if parts[0].stack == stack]
    return int([row for row in own if row["name"].endswith("block")][-1]["saved_size"])


@pytest.mark.parametrize(
    ("name", "hidden", "inner", "heads", "norms"),
    [("gpt-neox-20b", 6144, 2 * 24576, 64, 2 * 8), ("phi-3-mini", 3072, 4 * 8192, 32, 2 * 4)],
)
def test_merged_products_are_held_by_the_values(name: str, hidden: int, inner: int, heads: int, norms: int) -> None:
    """Both norms, queries, keys and values before and behind the rotation, attention and its copied rows."""
    sums = 1 if name.startswith("phi") else 0  # of sublayers in turn, the sum between them
    vectors = 2 + 3 + 2 + 2 + sums
    assert saved_by_a_block(name) == 64 * (2 * (vectors * hidden + inner) + 4 * heads + norms)


def test_queries_of_a_partial_rotation_are_copied() -> None:
    """Phi-2: one norm, queries, keys, values, attention and its rows, the perceptron's, two masks."""
    assert saved_by_a_block("phi-2") == 64 * (2 * (6 * 2560 + 2 * 10240) + 2 * 2560 + 4 * 32 + 8)


def test_a_router_in_full_precision_copies_its_input_and_its_weights() -> None:
    plain = read_model("deepseek-v2-lite")
    block = plain.decoder.blocks[-1]
    assert isinstance(block.transform, Experts)
    other = replace(block, transform=replace(block.transform, router_copies=False))
    sizes = []
    for blocks in ((block,), (other,)):
        model = replace(plain, decoder=replace(plain.decoder, blocks=blocks))
        sizes.append(stages_of(workload(config=model, sequence=64)).rows[1]["saved_size"])
    assert sizes[0] - sizes[1] == 4 * 2048 * (64 + 64)  # the norm's output is still saved, for the experts


def test_blocks_of_a_decoder_share_the_output_of_the_encoder() -> None:
    """BART: six vectors and a mask of each attention, four, a mask and the perceptron's; no copy of what they read."""
    hidden, statistics = 768, 4 * 12
    attention = 2 * 6 * hidden + hidden + statistics + 8
    # Queries, keys, values, output, sum and norm of each; the last norm's output is that of the block.
    assert saved_by_a_block("bart-base", 1) == 64 * (2 * attention + 2 * (hidden + 2 * 3072) + hidden + 8)


def test_every_block_of_t5_stores_scores() -> None:
    """The biases of the first block are added to the scores of all."""
    own, cross = 2 * 5 * 768, 2 * 5 * 768 + 4 * 12  # queries, keys, values, output and the norm's of either attention
    perceptron = 2 * (768 + 2 * 3072)
    both = own + perceptron + 2 * 768 + 2 * 4 + 2 * 768  # a sum between the sublayers, statistics, masks
    assert saved_by_a_block("t5-base") == 64 * (both + 2 * 12 * 64)
    assert saved_by_a_block("t5-base", 1) == 64 * (both + cross + 2 * 768 + 4 + 768 + 2 * 12 * 64)


def test_llama_with_adapters_needs_69_gb_and_fits_into_24_with_recomputation() -> None:
    training = Training()
    work = workload(config="llama-3-8b", sequence=8192, device="H100", lora="rank=16")
    found = estimate(work, training, 80 * 10**9 - 2**30)
    assert found.chosen is not None
    assert found.chosen.recomputed == 0
    assert found.needed(found.plain) == pytest.approx(69e9, rel=0.01)
    less = replace(work, setting=replace(work.setting, chunks=16))
    small = estimate(less, training, 24 * 10**9 - 2**30)
    assert small.chosen is not None
    assert small.chosen.recomputed == 30
    assert 0.35 < small.chosen.time / small.total_time < 0.42
    assert estimate(work, training, 24 * 10**9 - 2**30).chosen is None  # the logits alone are too much


def test_adapters_train_the_published_number_of_parameters() -> None:
    work = workload(config="llama-3-8b", lora="rank=16")
    assert sum(part.repeat * part.amounts.trained for part in work.parts) == 41_943_040
    some = workload(config="llama-3-8b", lora="rank=8,q_proj,v_proj")
    assert sum(part.repeat * part.amounts.trained for part in some.parts) == 3_407_872


def test_frozen_parameters_have_neither_gradients_nor_states() -> None:
    whole, part = (static_of(workload(config=TINY, frozen=frozen), Training()) for frozen in ("", "layers.[0-2].*"))
    block = static_of(workload(config=TINY), Training()).gradients
    assert part.parameters == whole.parameters
    assert part.gradients < block
    assert part.states == 6 * part.gradients


def test_frozen_first_blocks_save_nothing() -> None:
    work = workload(config=TINY, frozen="embedding,layers.[01].*")
    assert [part.name for part in work.parts] == ["embedding", "block", "block", "block", "head"]
    assert [part.repeat for part in work.parts] == [1, 2, 1, 1, 1]
    stages = stages_of(work)
    assert [row["name"] for row in stages.rows] == ["embedding", "block", "block", "head"]
    assert stages.rows[0]["saved_size"] == stages.rows[0]["backward_time"] == stages.rows[0]["gradient_size"] == 0
    first, other = stages.rows[1:3]
    assert first["backward_time"] < other["backward_time"]  # its input has no gradient


@pytest.mark.parametrize(("packed", "share"), [("nf4", 0.5159), ("int8", 1.0)])
def test_quantized_matrices_take_fewer_bytes(packed: str, share: float) -> None:
    plain = workload(config="llama-3-8b", lora="rank=16")
    small = workload(config="llama-3-8b", lora="rank=16", quantize=packed)
    saved = static_of(plain, Training()).parameters - static_of(small, Training()).parameters
    matrices = 32 * (2 * 4096 * (4096 + 1024) + 3 * 4096 * 14336)
    assert saved == pytest.approx((2 - share) * matrices, rel=1e-3)
    row = stages_of(small).rows[1]
    assert row["backward_workspace"] > stages_of(plain).rows[1]["backward_workspace"]


def test_ranks_share_as_zero_says() -> None:
    """Rajbhandari et al. 2020: 16, 4 + 12/d, 2 + 14/d and 16/d bytes per parameter, and what is gathered."""
    work = workload(config="llama-2-7b")
    count, largest = work.model.parameters, max(part.amounts.weights for part in work.parts)
    for zero, share in enumerate((16, 4 + 12 / 64, 2 + 14 / 64, 16 / 64)):
        static = static_of(work, Training(data=64, zero=zero))
        assert static.total - static.gathered == pytest.approx(share * count, rel=1e-8)
        assert static.gathered == {2: largest, 3: 3 * largest}.get(zero, 0)


def test_optimizers_keep_and_need_what_the_docs_say() -> None:
    work = workload(config=TINY)
    count = work.model.parameters
    for training, states, step in (
        (Training(), 12, 4),
        (Training(step="fused"), 12, 0),
        (Training(precision="pure"), 4, 2),
        (Training(optimizer="adamw"), 12, 4),
        (Training(optimizer="adam8"), 6, 0),
        (Training(optimizer="sgd"), 0, 0),
        (Training(optimizer="momentum", precision="pure"), 2, 0),
    ):
        static = static_of(work, training)
        assert (static.states, static.step) == (states * count, step * count)
    largest = max(part.amounts.largest for part in work.parts)
    assert static_of(work, Training(step="loop")).step == 3 * 4 * largest
    assert static_of(work, Training(optimizer="adafactor", precision="pure")).step == 2 * 2 * largest


@pytest.mark.parametrize("recompute", [False, True])
def test_the_largest_batch_and_the_longest_sequence_are_the_last_that_fit(recompute: bool) -> None:
    work, training, available = workload(config=TINY, batch=2, sequence=64), Training(), 12 * 10**6
    batch = largest_batch(work, training, available, recompute=recompute)
    length = longest_sequence(work, training, available, recompute=recompute)
    assert length is not None
    for key, number in (("batch", batch), ("sequence", length)):
        assert number > 0
        for more, wanted in ((0, True), (1, False)):
            own = replace(work, setting=replace(work.setting, **{key: number + more}))
            assert (
                fits(own, training, available, recompute=recompute) is wanted
                or number == 512 == own.model.positions + 0
            )
    assert longest_sequence(workload(config="vit-base"), training, available, recompute=recompute) is None


def test_memory_falls_and_time_grows_with_every_recomputed_block() -> None:
    figures = rows(workload(config="gpt2", batch=4, sequence=1024))
    peaks = [peak_of(figures, k, chunked=False) for k in range(sum(figures.block) + 1)]
    assert all(a.size >= b.size and a.time < b.time for a, b in pairwise(peaks))


@pytest.mark.parametrize("name", sorted(ENCODERS))
def test_a_decoder_keeps_what_the_encoder_made(name: str) -> None:
    work = workload(config=name, batch=2, sequence=64)
    figures = rows(work)
    assert figures.memory[0] == 0
    assert figures.memory[-1] > 0
    assert estimate(work, Training()).plain.size > sum(figures.saved)

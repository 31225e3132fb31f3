"""Activations of a layer: those that `remat generate --config` counts against those of the captured training step.

    <python with torch and transformers> -m benchmarks.config_activations [--operators] [--kernels written] [NAME...]

NAME is a shipped configuration. Its layers have their real sizes; there are few of them, and their parameters take no
memory (device `meta`). The step is captured for CUDA in bf16, with flash attention. A value is saved if the forward
makes it and the backward reads it. What a layer saves is the difference between steps of 3 and of 4 layers. Of models
with an encoder and a decoder, both grow by a layer. `t5-base` is not in the table: its attention stores its scores.

With `--kernels fused`, RMSNorm and GELU are single kernels, as the generator assumes. `written` leaves them as
transformers writes them. What the kernel of RMSNorm saves is what its backward takes in PyTorch.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from benchmarks.harness import table

torch: Any = import_module("torch")
functional: Any = torch.nn.functional

NAMES = (
    "llama-3-8b",
    "mistral-7b",
    "qwen2-7b",
    "qwen3-8b",
    "gemma-2-2b",
    "phi-2",
    "phi-3-mini",
    "gpt-neox-20b",
    "gpt2",
    "mixtral-8x7b",
    "deepseek-v2-lite",
    "bert-base",
    "roberta-base",
    "modernbert-base",
    "vit-base",
    "whisper-small",
    "bart-base",
)
BATCH, SEQUENCE, LAYERS = 2, 512, 3
COUNTS = ("num_hidden_layers", "n_layer", "num_layers", "num_decoder_layers", "encoder_layers", "decoder_layers")
ATTENTION = "remat_tiles"
EXPERTS = ("mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3")
TITLES = ("configuration", "generated", "captured", "difference", "s")


# --- what the generator counts ----------------------------------------------------------------------------------------


def fields_of(name: str, layers: int) -> dict[str, Any]:
    """Return a shipped configuration with so many layers, of the encoder and of the decoder."""
    known = import_module("remat.generate.models.reading").shipped()[name]
    return {key: layers if key in COUNTS else value for key, value in known.items()}


def generated(fields: Mapping[str, Any]) -> int:
    """Return the bytes that the generator keeps between the forward and the backward, without the head."""
    instances: Any = import_module("remat.generate.models.instances")
    sequence = min(SEQUENCE, fields.get("max_target_positions", SEQUENCE))
    work = instances.workload(config=fields, batch=BATCH, sequence=sequence, flash=True)
    rows = instances.stages_of(work).rows
    return sum(row.get("repeat", 1) * (row["saved_size"] + row["output_size"]) for row in rows)


# --- what PyTorch saves -----------------------------------------------------------------------------------------------


def model_of(fields: Mapping[str, Any]) -> Any:
    """Return the model of transformers without memory, whose attention is PyTorch's, without a mask."""
    library: Any = import_module("transformers")
    config = library.AutoConfig.for_model(**fields)
    config.use_cache = False
    if fields["model_type"] in ("t5", "bart", "whisper"):
        speech = fields["model_type"] == "whisper"
        kind = library.AutoModelForSpeechSeq2Seq if speech else library.AutoModelForSeq2SeqLM
    elif fields["model_type"] in ("bert", "roberta", "modernbert"):
        kind = library.AutoModelForMaskedLM
    elif fields["model_type"] == "vit":
        kind = library.AutoModelForImageClassification
    else:
        kind = library.AutoModelForCausalLM
    library.AttentionInterface.register(ATTENTION, attend)
    if fields["model_type"] != "t5":  # its attention has biases that are trained, and stores its scores
        config._attn_implementation = ATTENTION
    if fields["model_type"] in EXPERTS:
        config._experts_implementation = "grouped_mm"
    with torch.device("meta"):
        return kind.from_config(config, dtype=torch.bfloat16).train()


def attend(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: Any = None, dropout: float = 0.0,
    **_: Any,
) -> tuple[Any, None]:  # fmt: skip
    """Attend in tiles: heads of keys are shared, and windows need no mask."""
    mixed = functional.scaled_dot_product_attention(
        query, key, value, dropout_p=dropout, is_causal=getattr(module, "is_causal", False), scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )  # fmt: skip
    return mixed.transpose(1, 2).contiguous(), None


def arguments(fields: Mapping[str, Any], model: Any) -> dict[str, Any]:
    """Return what the model is called with, on no device."""
    meta = {"device": "meta"}
    ids = torch.zeros(BATCH, SEQUENCE, dtype=torch.long, **meta)
    if fields["model_type"] == "vit":
        pixels = torch.zeros(BATCH, 3, fields["image_size"], fields["image_size"], dtype=torch.bfloat16, **meta)
        return {"pixel_values": pixels}
    if fields["model_type"] == "whisper":
        frames = 2 * fields["max_source_positions"]
        sound = torch.zeros(BATCH, fields["num_mel_bins"], frames, dtype=torch.bfloat16, **meta)
        return {"input_features": sound, "decoder_input_ids": ids[:, : fields["max_target_positions"]]}
    if fields["model_type"] in ("t5", "bart"):
        return {"input_ids": ids, "decoder_input_ids": ids}
    return {"input_ids": ids}


def captured(fields: Mapping[str, Any], kernels: str) -> dict[str, int]:
    """Return the bytes that each kind of operator of the forward saves for the backward."""
    capture: Any = import_module("remat.bridges.torch.capture")
    model = model_of(fields)
    if kernels == "fused":
        fuse(model)

    class Loss(torch.nn.Module):  # type: ignore[misc,name-defined]
        """A model and a loss without much memory."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, given: Any) -> Any:
            return self.model(**given).logits.float().mean()

    torch._dynamo.reset()
    step = capture.capture_for("cuda", Loss(), (arguments(fields, model),), {})
    made = {value: task for task in step.joint.tasks.values() if task.phase == "forward" for value in task.writes}
    read = {value for task in step.joint.tasks.values() if task.phase == "backward" for value in task.reads}
    found: dict[str, int] = {}
    for value in read & made.keys():
        node = step.joint.nodes[made[value].node]
        module = ".".join(part for part in node.module.split(".") if not part.isdigit())
        key = f"{node.operator} {module}"
        found[key] = found.get(key, 0) + step.joint.values[value]
    return found


# --- fused kernels ----------------------------------------------------------------------------------------------------


def fuse(model: Any) -> None:
    """Put one kernel in the place of each norm and each activation that transformers writes as several."""
    for module in model.modules():
        name = type(module).__name__
        if name.endswith(("RMSNorm", "T5LayerNorm")):
            shift = name.startswith("Gemma")
            module.forward = lambda x, own=module, shift=shift: rms_norm(x, own.weight + 1 if shift else own.weight)
        elif name in ("NewGELUActivation", "FastGELUActivation"):
            module.forward = lambda x: functional.gelu(x, approximate="tanh")


def define_norm() -> Any:
    """Define an operator with the outputs and the saved tensors of `aten::_fused_rms_norm`.

    PyTorch would trace the latter as several operators where there is no CUDA.
    """
    taken = [each.name for each in torch.ops.aten._fused_rms_norm_backward.default._schema.arguments]
    assert taken == ["grad_out", "input", "normalized_shape", "rstd", "weight", "output_mask"], taken
    made = torch.library.Library("remat_benchmark", "DEF")
    made.define("rms_norm(Tensor x, Tensor weight) -> (Tensor, Tensor)")
    made.define("rms_norm_backward(Tensor gradient, Tensor x, Tensor rstd, Tensor weight) -> (Tensor, Tensor)")

    def forward(x: Any, weight: Any) -> Any:
        return torch.empty_like(x), x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)

    def backward(gradient: Any, x: Any, rstd: Any, weight: Any) -> Any:
        return torch.empty_like(x), torch.empty_like(weight)

    def save(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(inputs[0], output[1], inputs[1])

    def differentiate(ctx: Any, gradient: Any, _: Any) -> Any:
        return torch.ops.remat_benchmark.rms_norm_backward(gradient, *ctx.saved_tensors)

    torch.library.register_fake("remat_benchmark::rms_norm", forward, lib=made)
    torch.library.register_fake("remat_benchmark::rms_norm_backward", backward, lib=made)
    torch.library.register_autograd("remat_benchmark::rms_norm", differentiate, setup_context=save, lib=made)
    return made


DEFINITIONS = define_norm()
"""PyTorch drops the operators with their library."""


def rms_norm(x: Any, weight: Any) -> Any:
    """Run the kernel of RMSNorm."""
    return torch.ops.remat_benchmark.rms_norm(x, weight)[0]


# --- the table --------------------------------------------------------------------------------------------------------


def compared(name: str, kernels: str) -> tuple[int, dict[str, int]]:
    """Return what a layer saves: as generated, and as captured by operator."""
    less, more = fields_of(name, LAYERS), fields_of(name, LAYERS + 1)
    before, after = captured(less, kernels), captured(more, kernels)
    both = {key: after.get(key, 0) - before.get(key, 0) for key in {**before, **after}}
    return generated(more) - generated(less), {key: size for key, size in both.items() if size}


def rows(names: list[str], kernels: str, *, by_operator: bool) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of the table."""
    for name in names:
        begin = time.process_time()
        ours, found = compared(name, kernels)
        theirs = sum(found.values())
        if by_operator:
            listed = sorted(found.items(), key=lambda item: -item[1])
            sys.stderr.write("".join(f"{name}: {size:>12,} {key}\n" for key, size in listed))
        yield name, f"{ours:,}", f"{theirs:,}", f"{ours / theirs - 1:+.2%}", f"{time.process_time() - begin:.1f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.config_activations")
    parser.add_argument("names", nargs="*", metavar="NAME", help="shipped configurations; default: all of the table")
    parser.add_argument("--kernels", choices=["fused", "written"], default="fused")
    parser.add_argument("--operators", action="store_true", help="list what each operator saves")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    import_module("torch").set_num_threads(1)
    found = list(rows(given.names or list(NAMES), given.kernels, by_operator=given.operators))
    title = f"Bytes that a layer saves, {BATCH} x {SEQUENCE} tokens, bf16, flash attention, {given.kernels} kernels"
    table(title, TITLES, found)


if __name__ == "__main__":
    main()

"""Regenerate every generated instance of this folder: ``python instances/make.py`` (``--check`` only compares).

The traced ones (`TRACED`) are data and are left alone.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remat.generate import generate

HERE = Path(__file__).resolve().parent

TRACED = (
    "chains/gpt2s_b8_s1024_flash.json",
    "chains/resnet50_b32_224.json",
    "dags/mlp12_joint.json",
    "dags/unet_joint.json",
)


@dataclass(frozen=True)
class Recipe:
    """A file, and the family and parameters that make it; the instance is called like the file."""

    path: str
    kind: str
    family: str
    parameters: dict[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Generate the instance."""
        return generate(self.kind, self.family, name=Path(self.path).stem, **self.parameters)


A100_80GB = {"bandwidth": 2.039e12}  # data sheet, SXM
V100 = {"flops": 125e12, "bandwidth": 9e11}  # data sheet, SXM2, tensor cores

RECIPES = (
    Recipe("chains/gpt2_xl_b4.json", "chain", "transformer", {"preset": "gpt2-xl", "batch": 4}),
    Recipe(
        "chains/llama_7b_like_b4.json",
        "chain",
        "transformer",
        {"preset": "llama-7b-like", "batch": 4, "optimizer": "sgd", **A100_80GB},
    ),
    Recipe(
        "chains/bert_large_b32_scores.json",
        "chain",
        "transformer",
        {"preset": "bert-large", "batch": 32, "dtype": "fp16", "flash": False, **V100},
    ),
    Recipe(
        "chains/gpt2_small_b16_sublayers.json",
        "chain",
        "transformer",
        {"batch": 16, "granularity": "sublayer", "flash": False},
    ),
    Recipe(
        "chains/bert_large_b32_parameters.json",
        "chain",
        "transformer",
        {"preset": "bert-large", "batch": 32, "parameters": "device"},
    ),
    Recipe("chains/resnet101_b64_224.json", "chain", "resnet", {"depth": "101", "batch": 64}),
    Recipe("chains/random_l30.json", "chain", "random", {"length": 30, "max_workspace": 300, "seed": 1}),
    Recipe("adjoint/lecture_l5.json", "adjoint", "uniform", {"steps": 6}),
    Recipe(
        "adjoint/seismic_ram_disk.json",
        "adjoint",
        "uniform",
        {
            "steps": 2000,
            "forward_time": 0.25,
            "backward_time": 0.75,
            "state_size": 2 * 2**30,
            "storage": "ram:slots=24;disk:bandwidth=2GB/s",
            "units": "si",
        },
    ),
    Recipe("adjoint/loop_n10000.json", "adjoint", "uniform", {"steps": 10000, "storage": "checkpoints:slots=20"}),
    Recipe(
        "adjoint/three_levels_n500.json",
        "adjoint",
        "uniform",
        {
            "steps": 500,
            "backward_time": 2,
            "storage": "device:slots=3;host:slots=12,write_time=1,read_time=1;disk:write_time=6,read_time=6",
        },
    ),
    Recipe(
        "adjoint/heterogeneous_n200.json",
        "adjoint",
        "heterogeneous",
        {"steps": 200, "storage": "checkpoints:slots=10"},
    ),
    Recipe("dags/layered_n100.json", "dag", "layered"),
    Recipe(
        "dags/layered_n60_mixed.json",
        "dag",
        "layered",
        {
            "nodes": 60,
            "workspace_probability": 0.2,
            "multi_output_probability": 0.3,
            "alternative_probability": 0.2,
            "seed": 2,
        },
    ),
    Recipe("dags/unet_b8_512_bf16.json", "dag", "unet", {"image": 512, "batch": 8, "dtype": "bf16"}),
    Recipe("dags/vgg16_b32_224.json", "dag", "vgg"),
    Recipe("dags/in_place_resnet50_b32_224.json", "dag", "resnet", {"norm": "in-place"}),
    Recipe("dags/lstm_medium_t8.json", "dag", "lstm", {"steps": 8}),
    Recipe("dags/mixtral_layer.json", "dag", "moe", {"layers": 1}),
    Recipe("dags/gpt2_small_step.json", "dag", "transformer"),
    Recipe("dags/gpt2_small_step_host.json", "dag", "transformer", {"parameters": "host"}),
    Recipe("joins/siamese_resnet18_b32.json", "join", "siamese"),
    Recipe("trees/random_n200.json", "tree", "random", {"nodes": 200, "max_workspace": 500}),
    Recipe("trees/binary_n1000.json", "tree", "binary", {"seed": 1}),
    Recipe("trees/caterpillar_n300.json", "tree", "caterpillar", {"nodes": 300, "legs": 2}),
    Recipe("trees/postorder_trap_k3_b3.json", "tree", "postorder-trap"),
    Recipe(
        "pipelines/uniform_p4_m8.json",
        "pipeline",
        "uniform",
        {"layers": 8, "backward_time": 1, "weight_time": 1, "activation": 2, "kept": 1, "copies": 2},
    ),
    Recipe(
        "pipelines/gpt2_xl_p8_m32.json",
        "pipeline",
        "transformer",
        {"preset": "gpt2-xl", "devices": 8, "micro_batches": 32},
    ),
    Recipe(
        "pipelines/bert_large_two_nodes.json",
        "pipeline",
        "transformer",
        {"preset": "bert-large", "devices": 4, "micro_batches": 8, "batch": 4, "node": 2, "copies": 2},
    ),
)


def render(document: dict[str, Any]) -> str:
    """Return the JSON text of an instance: one line per key, and one per entry of a list of objects."""
    lines = []
    for key, value in document.items():
        text = json.dumps(value)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            text = "[\n  " + ",\n  ".join(json.dumps(entry) for entry in value) + "\n ]"
        lines.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main(arguments: list[str]) -> int:
    """Write the files, or with ``--check`` name those that differ."""
    stale = []
    for recipe in RECIPES:
        path = HERE / recipe.path
        text = render(recipe.document())
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(recipe.path)
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
    sys.stdout.write("".join(f"{path}\n" for path in stale))
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""CPU seconds for each new sequence length, as batches padded to their longest sequence have them.

    <python with torch and transformers> -m benchmarks.torch_shapes [--lengths 200] [--budget 70%]

A four-layer model of the Llama type. Each length is trained twice; what the first step takes beyond the second is the
price of a new length.
"""

from __future__ import annotations

import argparse
import random
import time
from importlib import import_module
from statistics import median
from typing import Any

WORK = {"iterations": 8}


def network() -> Any:
    """Return the model, which returns its loss."""
    torch: Any = import_module("torch")
    transformers: Any = import_module("transformers")
    config = transformers.LlamaConfig(
        vocab_size=256, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, use_cache=False,
    )  # fmt: skip
    torch.manual_seed(0)
    models: Any = import_module("tests.torch.models")
    return models.LossOnly(transformers.LlamaForCausalLM(config))


def main() -> None:
    """Train with each length, and print what it takes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, default=200)
    parser.add_argument("--budget", default="70%")
    given = parser.parse_args()
    torch: Any = import_module("torch")
    remat_torch: Any = import_module("remat.torch")
    torch.set_num_threads(1)
    module = network()
    planned = remat_torch.compile(module, given.budget, algorithm="dag-auto", options=WORK)
    lengths = random.Random(1).sample(range(20, 20 + 3 * given.lengths // 2), given.lengths)

    def seconds(ids: Any) -> float:
        begin = time.process_time()
        module.zero_grad()
        planned(ids).backward()
        return time.process_time() - begin

    extra: list[float] = []
    for length in lengths:
        ids = torch.randint(256, (4, length))
        extra.append(seconds(ids) - seconds(ids))
    rest = extra[2:]
    print(f"first length {extra[0]:.2f} s, second {extra[1]:.2f} s")
    print(f"{len(rest)} further lengths: median {median(rest):.3f} s, largest {max(rest):.3f} s, CPU")


if __name__ == "__main__":
    main()

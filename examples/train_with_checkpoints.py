"""A training script that reads the decisions of a schedule, and applies `torch.utils.checkpoint` by them.

    python examples/train_with_checkpoints.py [--budget 60%] [--steps 20]

Needs PyTorch: pip install torch
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import remat

Segment = tuple[bool, list[int]]
"""Whether the blocks run again for their backward, and which blocks they are."""


class Saved:
    """Counts the bytes that autograd saves within a ``with`` block, parameters left out; each storage once."""

    def __init__(self, model: nn.Module) -> None:
        self.bytes = 0
        self._seen = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}

    def __enter__(self) -> Saved:
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._count, lambda tensor: tensor)
        self._hooks.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._hooks.__exit__(*exception)

    def _count(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._seen:
            self._seen.add(storage.data_ptr())
            self.bytes += storage.nbytes()
        return tensor


def profiled(blocks: Sequence[nn.Module], batch: torch.Tensor) -> remat.ChainInstance:
    """Measure each block alone, and return the chain of all."""
    forward, backward, output, saved = [], [], [], []
    x = batch
    for block in blocks:
        x = x.detach().requires_grad_()
        with Saved(block) as held:
            begin = time.perf_counter()
            y = block(x)
            middle = time.perf_counter()
        y.backward(torch.ones_like(y))
        forward.append(middle - begin)
        backward.append(time.perf_counter() - middle)
        output.append(y.untyped_storage().nbytes())
        # The block's input is the chain's own value, and counts there.
        saved.append(max(0, held.bytes - x.untyped_storage().nbytes()))
        x = y
    for block in blocks:
        block.zero_grad(set_to_none=True)
    return remat.chain(
        forward_time=forward,
        backward_time=backward,
        output_size=output,
        saved_size=saved,
        input_size=batch.untyped_storage().nbytes(),
        time_unit="s",
    )


def segments_of(result: remat.Result) -> list[Segment]:
    """Group the blocks: those that are recomputed from one kept input are one call of `checkpoint`."""
    found: list[Segment] = []
    for row in result.stage_decisions:
        again = row.decision == "recomputed"
        input_is_kept = result.decisions[f"x{row.stage}"].runs <= 1
        if found and again and found[-1][0] and not input_is_kept:
            found[-1][1].append(row.stage)
        else:
            found.append((again, [row.stage]))
    return found


def run(blocks: Sequence[nn.Module], segments: Sequence[Segment], x: torch.Tensor) -> torch.Tensor:
    """Run all blocks, and keep of each segment that runs again only its input."""
    for again, stages in segments:
        part = nn.Sequential(*(blocks[stage] for stage in stages))
        x = checkpoint(part, x, use_reentrant=False) if again else part(x)
    return x


def main() -> None:
    """Train a small model with a budget, and without one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", default="60%")
    parser.add_argument("--steps", type=int, default=20)
    asked = parser.parse_args()
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(8)]
    model = nn.ModuleList(blocks)
    batch, target = torch.randn(512, 64), torch.randn(512, 64)
    result = remat.solve(profiled(blocks, batch), algorithm="rotor", budget=asked.budget)
    if result.makespan is None:
        raise SystemExit(f"{result.status}: {asked.budget} is too little for any schedule")
    plain: list[Segment] = [(False, list(range(len(blocks))))]
    planned = segments_of(result)
    gradients, held = [], []
    for segments in (plain, planned):
        model.zero_grad(set_to_none=True)
        with Saved(model) as saved:
            loss = nn.functional.mse_loss(run(blocks, segments, batch), target)
        loss.backward()
        held.append(saved.bytes)
        gradients.append([parameter.grad for parameter in model.parameters()])
    equal = all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))
    print(f"segments that run again: {[stages for again, stages in planned if again]}")
    print(f"saved by autograd: {held[0] / 1e6:.1f} MB without checkpoints, {held[1] / 1e6:.1f} MB with them")
    print(f"equal gradients: {equal}")
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    for step in range(asked.steps):
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(run(blocks, planned, batch), target)
        loss.backward()
        optimizer.step()
        if step in (0, asked.steps - 1):
            print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()

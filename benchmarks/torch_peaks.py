"""Peaks under Inductor, predicted and measured: small networks of many kinds, each without a budget and at two budgets.

    <python with torch and transformers> -m benchmarks.torch_peaks [--networks NAME...] [--store FILE] [--shown]

One thread of the CPU. Peaks are the allocator's in forward and backward, without parameters and inputs; gradients
count. `predicted` is the peak of the generated code, `model` that of the fusion model, which
`remat.torch.Partitioner` reports. Gradients are compared with those of the plan without a budget. Each network has a
process of its own. The store keeps one row a line, so that a second run goes on where the first has stopped.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import Store, table
from benchmarks.torch_architectures import returned_loss
from benchmarks.torch_inductor import predicted_of
from benchmarks.torch_networks import NETWORKS, compiler_of, network, peak_of

OURS = ("llama", "gpt2", "bert", "vit", "resnet", "densenet", "diffusion", "unet", "mixer", "dropout")
OTHERS = (
    "t5", "convnext", "lstm", "mixtral, grouped_mm", "mamba", "swin", "diffusion U-Net, text", "graph attention",
    "dlrm", "gru", "diffusion transformer", "complex FFT",
)  # fmt: skip
"""Those of `benchmarks.torch_networks`, at their small scale, and of `benchmarks.architectures`."""
SHARES = (1.0, 0.8, 0.6)
"""Budgets: none, and so much of the peak without one that is not gradients."""
TRIES = 3
"""Budgets halfway to the last one that was large enough, where a budget is too small."""
WORK: dict[str, Any] = {"algorithm": "dag-auto", "options": {"iterations": 8}}
"""A plan that does not depend on the load of the machine."""
SEED = 3


class Subject:
    """A network with its inputs, planned at several budgets."""

    def __init__(self, name: str) -> None:
        self.torch: Any = compiler_of()
        self.face: Any = import_module("remat.torch")
        self.name = name
        self.torch.manual_seed(0)
        if name in NETWORKS:
            self.module, self.args = network(name, "small")
        else:
            module, self.args = import_module("benchmarks.architectures").NETWORKS[name]()
            self.module = module.train()
        parameters = list(self.module.parameters())
        self.gradients = sum(tensor.nbytes for tensor in parameters if tensor.requires_grad)
        self.static = sum(tensor.nbytes for tensor in (*parameters, *self.module.buffers(), *self.args))
        self.kept = {key: tensor.clone() for key, tensor in self.module.state_dict().items()}
        self.right: list[Any] | None = None

    def row(self, share: float, whole: int | None) -> dict[str, Any]:
        """Return what is predicted and measured at a share of the peak without a budget."""
        begin = time.process_time()
        budget = None if whole is None else self.static + self.gradients + int(share * (whole - self.gradients))
        row: dict[str, Any] = {"network": self.name, "taken": share, "budget": budget}
        try:
            planned = self._planned(budget)
        except self.face.TooSmallError as error:
            row["refused"] = str(error)[:150]
            return row
        plan, peak = planned.plan, peak_of(lambda: self._step(planned), planned)
        counted = predicted_of(plan)
        model = plan.schedule["peak_memory"]["memory"] - (plan.peak - counted)
        row |= {"predicted": counted, "measured": peak, "model": model, "overhead": plan.overhead}
        return row | {"difference": self._difference(planned), "seconds": time.process_time() - begin}

    def _planned(self, budget: int | None) -> Any:
        self.torch._dynamo.reset()
        planned = self.face.compile(self.module, budget=budget, inductor=True, **WORK)
        self._step(planned)
        if planned.plan is None:
            raise SystemExit(f"{self.name}: no single plan")
        return planned

    def _step(self, planned: Any) -> None:
        self.torch.manual_seed(SEED)
        returned_loss(planned(*self.args)).backward()

    def _difference(self, planned: Any) -> float:
        """Return the largest difference of a gradient from that of the first plan, over the largest norm of one.

        Gradients that cancel, such as those of weights before a normalisation, have no digits of their own.
        """
        self.module.load_state_dict(self.kept)
        self._step(planned)
        found = [parameter.grad.clone() for parameter in planned.parameters() if parameter.grad is not None]
        self.right = self.right or found
        pairs = zip(self.right, found, strict=True)
        largest = max((float(one.norm()) for one in self.right), default=0.0)
        return max((float((one - two).norm()) for one, two in pairs), default=0.0) / max(largest, 1e-30)

    def fitting(self, share: float, least: float, whole: int | None) -> dict[str, Any]:
        """Return the row at a share, or at one nearer to the last that was large enough, if this one is too small."""
        row = self.row(share, whole)
        for _ in range(TRIES):
            if "refused" in row:
                row = self.row(row["taken"] / 2 + least / 2, whole)
        return row


def keys_of(name: str) -> dict[float, str]:
    """Return the key in the store of each row of a network, by share."""
    return {share: f"{name}, {share:.0%}" for share in SHARES}


def measure_network(name: str, store: Store) -> None:
    """Add the rows of a network that the store does not have."""
    subject = Subject(name)
    whole: int | None = None
    least = 1.0
    for share, key in keys_of(name).items():
        if key not in store.known:
            store.add(key, subject.fitting(share, least, whole))
            sys.stderr.write(f"{store.known[key]}\n")
        row = store.known[key]
        if "refused" not in row:
            whole, least = whole or row["predicted"], row["taken"]


def show(rows: list[dict[str, Any]]) -> None:
    """Print the table."""
    cells = []
    for row in rows:
        label = "none" if row["budget"] is None else f"{row['taken']:.0%} of the rest"
        if "refused" in row:
            cells.append((row["network"], label, "", "", "", "", "", "", row["refused"]))
            continue
        ratio, model = row["measured"] / row["predicted"], row["measured"] / row["model"]
        cells.append(
            (
                row["network"], label, f"{row['predicted'] / 1e6:.3f}", f"{row['measured'] / 1e6:.3f}", f"{ratio:.5f}",
                f"{model:.3f}", f"{row['overhead']:.1%}", f"{row['difference']:.1e}" if row["difference"] else "equal",
                "above" if ratio > 1 else "",
            )
        )  # fmt: skip
    head = "network", "budget", "predicted MB", "measured MB", "ratio", "of model", "overhead", "gradients", ""
    table("Peaks under Inductor", head, cells)
    found = [row for row in rows if "refused" not in row]
    for key in ("predicted", "model"):
        ratios = [row["measured"] / row[key] for row in found]
        if ratios:
            figures = f"median {median(ratios):.5f}, least {min(ratios):.5f}, most {max(ratios):.5f}"
            sys.stdout.write(f"\nmeasured / {key}: {figures}, {len(ratios)} rows\n")


def main() -> None:
    """Measure what the store does not have, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_peaks")
    parser.add_argument("--networks", nargs="+", choices=(*OURS, *OTHERS), default=(*OURS, *OTHERS))
    parser.add_argument("--store", type=Path, default=Path("build/torch_peaks.jsonl"))
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no further network after so long")
    parser.add_argument("--one", action="store_true", help="measure in this process")
    parser.add_argument("--shown", action="store_true", help="print what the store has")
    given = parser.parse_args()
    given.store.parent.mkdir(parents=True, exist_ok=True)
    if given.one:
        for name in given.networks:
            measure_network(name, Store.at(given.store))
        return
    until = time.perf_counter() + given.seconds
    for name in () if given.shown else given.networks:
        if Store.at(given.store).known.keys() >= set(keys_of(name).values()) or time.perf_counter() > until:
            continue
        command = [sys.executable, "-m", "benchmarks.torch_peaks", "--one", "--networks", name]
        subprocess.run([*command, "--store", str(given.store)], check=False)
    show([row for row in Store.at(given.store).known.values() if row["network"] in given.networks])


if __name__ == "__main__":
    main()

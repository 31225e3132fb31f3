"""Many architectures: captured, planned half-way, trained one step; its gradients against `aot_eager`, its live peak.

    <python with torch and transformers> -m benchmarks.torch_architectures [NAME...]

Half-way is the middle between the smallest peak that was found and the peak without recomputation. `bitwise` says
whether loss, gradients and buffers equal those of `torch.compile(backend="aot_eager")`. `live - plan` is what storages
took above the plan, in bytes; the loss and its gradient take a few.
"""

from __future__ import annotations

import copy
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from benchmarks.harness import table

SEED = 3
WORK = {"iterations": 4}
TITLES = ("architecture", "tasks", "overhead", "bitwise", "live - plan", "s", "refusal")


def returned_loss(returned: Any) -> Any:
    """Return the loss of what a module returns."""
    return returned if hasattr(returned, "backward") else returned["loss"]


def step(call: Any, module: Any, args: tuple[Any, ...]) -> dict[str, Any]:
    """Return loss, gradients and buffers of a step."""
    torch: Any = import_module("torch")
    module.zero_grad()
    torch.manual_seed(SEED)
    import_module("numpy").random.seed(SEED)  # transformers draws masks of spectrograms with it
    loss = returned_loss(call(*args))
    loss.backward()
    gradients = {name: part.grad for name, part in module.named_parameters() if part.grad is not None}
    return {"loss": loss.detach(), **gradients, **{f"{name} ": part for name, part in module.named_buffers()}}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether all tensors are equal to the bit."""
    torch: Any = import_module("torch")
    dense = lambda tensor: tensor.to_dense() if tensor.is_sparse else tensor  # noqa: E731
    return one.keys() == other.keys() and all(torch.equal(dense(one[name]), dense(other[name])) for name in one)


def examine(name: str) -> dict[str, Any]:
    """Return the row of an architecture."""
    torch: Any = import_module("torch")
    measure: Any = import_module("remat.bridges.torch.measure")
    networks: Any = import_module("benchmarks.architectures")
    torch._dynamo.reset()
    torch.manual_seed(0)
    begin = time.process_time()
    module, args = networks.NETWORKS[name]()
    module.train()
    start = copy.deepcopy(module.state_dict())
    row: dict[str, Any] = {"architecture": name}
    try:
        budget = half_way(module, args)
        planner, found = trained(module, args, start, (budget,) if budget else ("90%", "100%"))
        plan, found = planner.plan, {name: part.clone() for name, part in found.items()}
        module.load_state_dict(start)
        other = copy.deepcopy(planner)  # hooks that its first call has installed included
        other._compiled_call_impl = None
        with import_module("remat.bridges.torch.capture").dynamo_settings(whole=isinstance(budget, int)):
            right = step(torch.compile(other, backend="aot_eager"), other, args)
        row["bitwise"] = "yes" if same(found, right) else "NO"
        row |= {"tasks": len(set(plan.runs)), "overhead": f"{plan.overhead:.1%}"}
        module.load_state_dict(start)
        module.zero_grad()
        torch.manual_seed(SEED)
        live = measure.LiveStorages([*module.parameters(), *module.buffers(), *args])
        with live:
            returned_loss(planner(*args)).backward()
        row["live - plan"] = f"{live.peak - plan.split['activations'] - plan.split.get('gradients', 0):+,}"
    except Exception as error:
        row["refusal"] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
    return row | {"s": f"{time.process_time() - begin:.1f}"}


def trained(module: Any, args: tuple[Any, ...], start: Any, budgets: Sequence[int | str]) -> tuple[Any, dict[str, Any]]:
    """Return the module compiled with the first of the budgets that is large enough, and a step of it."""
    remat_torch: Any = import_module("remat.torch")
    for budget in budgets:
        planner = remat_torch.compile(module, budget=budget, algorithm="dag-auto", options=WORK)
        try:
            for _ in range(3):  # several graphs are planned together once all are known: in the second step
                module.load_state_dict(start)
                found = step(planner, module, args)
                if planner.plan is not None:
                    return planner, found
        except remat_torch.TooSmallError:
            if budget == budgets[-1]:
                raise
    raise AssertionError


def half_way(module: Any, args: tuple[Any, ...]) -> int | None:
    """Return the middle between the smallest peak that is found and the peak without recomputation.

    None for a module that breaks into several graphs, whose capture fails.
    """
    remat: Any = import_module("remat")
    remat_torch: Any = import_module("remat.torch")
    try:
        captured = remat_torch.capture(module, *args)
    except remat_torch.TorchError:
        return None
    instance = captured.instance(static=sum(captured.static_bytes().values()))
    kept = remat.solve(instance, algorithm="keep-all").peak_memory["memory"]
    least = remat.least_budget(
        instance, max_overhead="100000%", algorithm="dag-auto", options={"iterations": 1}, time_limit=20
    )
    return int(kept + least.peak_memory["memory"]) // 2


def rows(names: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows."""
    for name in names:
        row = examine(name)
        sys.stderr.write(f"{row}\n")
        yield row


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore")
    import_module("torch").set_num_threads(1)
    known = import_module("benchmarks.architectures").NETWORKS
    names = sys.argv[1:] or list(known)
    found = [[row.get(title, "") for title in TITLES] for row in rows(names)]
    trained = sum(row[TITLES.index("bitwise")] == "yes" for row in found)
    table(f"{trained} of {len(found)} architectures train as planned, bitwise as aot_eager", TITLES, found)


if __name__ == "__main__":
    main()

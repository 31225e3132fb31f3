"""Plans that Inductor compiles: the partitioner for its configuration, and the compiler of `remat.torch.backend`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remat.bridges.torch.capture import Captured, Source
from remat.bridges.torch.costs import read_costs, read_optimizer
from remat.bridges.torch.graph_emission import emit
from remat.bridges.torch.graphs import build
from remat.bridges.torch.plan_options import Choices, make_choices
from remat.bridges.torch.planning import MEASURE, Plan, make_plan
from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.shim import torch
from remat.version import __version__

if TYPE_CHECKING:

    class CustomPartitionerFn:
        """Inductor's class of partitioners."""

else:
    from torch._inductor.custom_graph_pass import CustomPartitionerFn

Partition = Callable[..., tuple[Any, Any]]


class Partitioner(CustomPartitionerFn):
    """A partitioner for Inductor that plans each training graph within a budget.

    Parameters
    ----------
    budget, **choices
        As for `remat.torch.backend`; one budget.

    Examples
    --------
    ``torch._inductor.config.custom_partitioner_fn = remat.torch.Partitioner(budget="8GB")``
    """

    def __init__(self, budget: int | str | None = None, **choices: Any) -> None:
        self.choices = make_choices(budget, choices)
        self.plans: list[Plan] = []

    def __call__(
        self,
        gm: Any,
        joint_inputs: Sequence[Any],
        *,
        num_fwd_outputs: int,
        static_lifetime_input_indices: Sequence[int] | None = None,
        **_: Any,
    ) -> tuple[Any, Any]:
        """Return the forward and the backward graph of a joint graph."""
        captured = Captured(None, gm, num_fwd_outputs, _by_lifetime(gm, static_lifetime_input_indices or ()), None)
        plan = make_plan(captured, self.choices)
        self.plans.append(plan)
        return build(captured, emit(captured.joint, plan.runs))

    def uuid(self) -> str | None:
        """Return what the graphs depend on; None, which switches the cache off, for costs measured at each call."""
        return identity(self.choices)

    def __getstate__(self) -> dict[str, Any]:
        return {"choices": self.choices}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.choices, self.plans = state["choices"], []


def identity(choices: Choices) -> str | None:
    """Return a text that is equal for equal choices, files by their content; None for measured costs."""
    if choices.costs == MEASURE:
        return None
    costs = read_costs(choices.costs)
    said = {
        "remat": __version__,
        "torch": str(torch.__version__),
        "budget": str(choices.budget),
        "costs": f"{costs.source} {costs.rate} {costs.bandwidth} {sorted(costs.measured.items())}",
        "reserve": str(choices.reserve),
        "optimizer": str(read_optimizer(choices.optimizer)),
        "accumulate": choices.accumulate,
        "algorithm": f"{choices.algorithm} {sorted(choices.options.items())} {choices.seconds}",
        "plan": "" if choices.plan is None else hashlib.sha256(Path(choices.plan).read_bytes()).hexdigest(),
    }
    text = json.dumps(said, sort_keys=True)
    return f"remat {__version__}: budget {choices.budget}, {hashlib.sha256(text.encode()).hexdigest()}"


def _by_lifetime(graph: Any, static: Sequence[int]) -> tuple[Source, ...]:
    """Distinguish parameters and buffers, which outlive the step, from other inputs."""
    given = [node for node in graph.graph.find_nodes(op="placeholder") if "tangents" not in node.name]
    output = next(iter(graph.graph.find_nodes(op="output")))
    gradients = output.args[0][-len(given) :]
    kinds = ("buffer" if gradient is None else "parameter" for gradient in gradients)
    return tuple(Source(kind if index in set(static) else "input") for index, kind in enumerate(kinds))


class _Within(CustomPartitionerFn):
    """Inductor's partitioner while one graph is compiled; nothing of it enters a cache."""

    def __init__(self, partition: Partition, name: str) -> None:
        self.partition, self.name = partition, name

    def __call__(self, gm: Any, joint_inputs: Sequence[Any], **given: Any) -> tuple[Any, Any]:
        return self.partition(gm, joint_inputs, **given)

    def uuid(self) -> str:
        """Return a text that is the same for all: Inductor's cache of kernels goes by the graphs."""
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (self.name,)


def compile_graph(graph: Any, inputs: list[Any], partition: Partition) -> Callable[..., Any]:
    """Compile a graph of Dynamo's with Inductor and a partition.

    The cache of AOTAutograd is left out, since it would skip the partition, and with it the plan. Inductor's cache of
    compiled graphs is used.
    """
    config: Any = import_module("torch._inductor.config")
    functorch: Any = import_module("torch._functorch.config")
    compiler: Any = import_module("torch._inductor.compile_fx")
    if config.cpp_wrapper or config.fx_wrapper:
        raise TorchError("Inductor's options cpp_wrapper and fx_wrapper are not supported with inductor=True")
    partitioner = _Within(partition, f"remat {__version__}")
    with (
        config.patch(custom_partitioner_fn=partitioner),
        functorch.patch(enable_autograd_cache=False, force_non_lazy_backward_lowering=True),
    ):
        return compiler.compile_fx(graph, inputs)  # type: ignore[no-any-return]

"""Plans that Inductor compiles: the partitioner for its configuration, and the compiler of `remat.torch.backend`."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remat.bridges.torch.capture import Captured, Source
from remat.bridges.torch.costs import Costs, read_costs
from remat.bridges.torch.fusion import Fusion
from remat.bridges.torch.generated_code import Account, LibraryWorkspace, Program, Workspace, account
from remat.bridges.torch.graph_emission import emit
from remat.bridges.torch.graphs import build
from remat.bridges.torch.operator_timing import MEASURE, costs_of
from remat.bridges.torch.optimizers import read_optimizer
from remat.bridges.torch.plan_options import Choices, make_choices
from remat.bridges.torch.planning import Plan, TooSmallError, in_bytes, make_plan, plan_in_order
from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.shim import fx, torch
from remat.messages import reason
from remat.units import format_size, parse_budget
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
        self.workspace = LibraryWorkspace()

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
        static = (
            {}
            if static_lifetime_input_indices is None
            else {"static_lifetime_input_indices": static_lifetime_input_indices}
        )
        fuse(captured, joint_inputs, num_fwd_outputs, **static).library = self.workspace
        plan = make_plan(captured, in_bytes(captured, self.choices))
        self.plans.append(plan)
        return build(captured, emit(captured.joint, captured.members(plan.runs)))

    def uuid(self) -> str | None:
        """Return the cache key of the graphs; None disables the cache, for costs that are measured at each call."""
        return identity(self.choices)

    def __getstate__(self) -> dict[str, Any]:
        return {"choices": self.choices}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.choices, self.plans, self.workspace = state["choices"], [], LibraryWorkspace()


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
    """Inductor's partitioner while one graph is compiled; its results are not cached."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition

    def __call__(self, gm: Any, joint_inputs: Sequence[Any], **given: Any) -> tuple[Any, Any]:
        return self.partition(gm, joint_inputs, **given)

    def uuid(self) -> str:
        """Return a constant text: Inductor's cache of kernels uses the graphs as keys."""
        return f"remat {__version__}"

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (self.uuid(),)


OTHERS = (0.9, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05)
"""Budgets of Inductor's own partitioner whose orders a plan competes with."""


def fuse(captured: Captured, joint_inputs: Sequence[Any], forward_outputs: int, **given: Any) -> Fusion:
    """Group the operators of a captured step, and note the orders of Inductor's own partitioner."""
    captured.check_alone("plans through Inductor are for")
    saved = default_saved(captured.graph, joint_inputs, forward_outputs, **given)
    fusion = Fusion(captured.joint, captured.by_name, saved)

    @cache
    def others() -> list[list[str]]:
        found = (default_saved(captured.graph, joint_inputs, forward_outputs, share, **given) for share in OTHERS)
        return [fusion.order(names) for names in dict.fromkeys(map(tuple, found))]

    captured.fusion, captured.reference, captured.others = fusion, fusion.order(saved), others
    return fusion


def default_saved(
    graph: Any, joint_inputs: Sequence[Any], forward_outputs: int, share: float = 1.0, **given: Any
) -> list[str]:
    """Return the nodes that Inductor's partitioner passes to the backward at an activation memory budget."""
    partitioners: Any = import_module("torch._functorch.partitioners")
    config: Any = import_module("torch._functorch.config")
    copied = fx.GraphModule(graph, copy.deepcopy(graph.graph))
    with config.patch(activation_memory_budget=share):
        _, backward = partitioners.min_cut_rematerialization_partition(
            copied, joint_inputs, num_fwd_outputs=forward_outputs, **{"compiler": "inductor", **given}
        )
    names = [node.name for node in backward.graph.find_nodes(op="placeholder")]
    return [name for name in names if "tangents" not in name]


class Compiler:
    """Compiles a graph of Dynamo with Inductor, and counts the allocations of the generated code.

    Parameters
    ----------
    graph, inputs
        Of Dynamo's.
    """

    def __init__(self, graph: Any, inputs: list[Any]) -> None:
        self.graph, self.inputs = graph, inputs
        self.programs: list[Program] = []
        self.given: list[Any] = []
        self.tangents: list[Any] = []
        self.outputs = 0

    def compile(self, partition: Partition, *, reuse: bool = True) -> Callable[..., Any]:
        """Return the compiled graph.

        The cache of AOTAutograd is left out, since it would skip the partition, and with it the plan. Inductor's cache
        of compiled graphs is used. Without `reuse`, the code frees each buffer after its last use; otherwise it may
        keep the buffer for a later one of the same size.
        """
        config: Any = import_module("torch._inductor.config")
        functorch: Any = import_module("torch._functorch.config")
        compiler: Any = import_module("torch._inductor.compile_fx")
        if config.cpp_wrapper or config.fx_wrapper:
            raise TorchError("Inductor's options cpp_wrapper and fx_wrapper are not supported with inductor=True")
        self.programs.clear()

        def inner(module: Any, given: Sequence[Any], **options: Any) -> Any:
            if not self.programs:
                self.given = list(given)
            compiled = compiler.compile_fx_inner(module, given, **options)
            self.programs.append(Program(compiled.source_code, dict(compiled.constants or {})))
            return compiled

        def noted(joint: Any, joint_inputs: Any, *, num_fwd_outputs: int, **options: Any) -> tuple[Any, Any]:
            self.outputs = num_fwd_outputs
            nodes = joint.graph.find_nodes(op="placeholder")
            self.tangents = [node.meta["val"] for node in nodes if "tangents" in node.name]
            return partition(joint, joint_inputs, num_fwd_outputs=num_fwd_outputs, **options)

        graph = fx.GraphModule(self.graph, copy.deepcopy(self.graph.graph))  # Inductor changes what it is given
        with (
            config.patch(custom_partitioner_fn=_Within(noted), allow_buffer_reuse=reuse and config.allow_buffer_reuse),
            functorch.patch(enable_autograd_cache=False, force_non_lazy_backward_lowering=True),
        ):
            return compiler.compile_fx(graph, self.inputs, inner_compile=inner)  # type: ignore[no-any-return]

    def account(self, workspace: Workspace | None = None) -> Account | None:
        """Return the allocations of forward and backward; None for a graph without a backward."""
        if len(self.programs) != 2:
            return None
        programs = self.programs[0], self.programs[1]
        try:
            return account(programs, self.given, self.tangents, self.outputs, workspace)
        except TorchError:
            raise
        except Exception as error:
            raise TorchError(
                f"the memory of Inductor's code cannot be followed ({reason(error)}); "
                f"inductor=False plans without Inductor"
            ) from error


ATTEMPTS, RIVALS = 4, 2
CLOSE, ABOVE = 0.05, 0.1
"""Compilations at most for one plan, those for Inductor's own orders, the unused share of a budget that makes another
plan worthwhile, and how far an order of Inductor's may be above a budget by the model."""


@dataclass(frozen=True)
class Rival:
    """An order of Inductor's own partitioner, with its peak and overhead by the fusion model."""

    runs: tuple[str, ...]
    modelled: int
    overhead: float


@dataclass(frozen=True)
class Attempt:
    """A compiled plan.

    Attributes
    ----------
    compiled : callable
    plan : Plan
        With the peak of the generated code.
    modelled : int
        Its peak by the fusion model.
    budget : int or None
        In bytes.
    recomputes : bool
        Whether it differs from Inductor's own order.
    """

    compiled: Callable[..., Any]
    plan: Plan
    modelled: int
    budget: int | None
    recomputes: bool

    @property
    def need(self) -> int:
        """Bytes of the plan and its reserve."""
        return self.plan.peak + self.plan.split.get("reserve", 0)


@dataclass(frozen=True)
class Planner:
    """The arguments for planning graphs.

    Attributes
    ----------
    captured_of : callable
        Returns the captured step for a joint graph and the number of the forward's outputs.
    choices : Choices
    workspace : LibraryWorkspace
    measured : list of Costs
        Costs that were measured, for all attempts.
    orders : list of lists of str
        Those of Inductor's own partitioner, for all attempts.
    rivals : list of Rival
        The same, once there was a plan that recomputes.
    """

    captured_of: Callable[[Any, int], Captured]
    choices: Choices
    workspace: LibraryWorkspace = field(default_factory=LibraryWorkspace)
    measured: list[Costs] = field(default_factory=list)
    orders: list[list[str]] = field(default_factory=list)
    rivals: list[Rival] = field(default_factory=list)

    def _choices(self, captured: Captured) -> Choices:
        """Return the choices with a budget in bytes, and with costs that are measured only once."""
        choices = self.choices
        if choices.costs == MEASURE:
            if not self.measured:
                self.measured.append(costs_of(captured, choices.costs, choices.cache))
            choices = replace(choices, costs=self.measured[0])
        return in_bytes(captured, choices)

    def _own_orders(self, captured: Captured) -> Callable[[], list[list[str]]]:
        """Return a function that makes the orders of Inductor's own partitioner, once for all attempts."""
        made = captured.others
        assert made is not None

        def orders() -> list[list[str]]:
            if not self.orders:
                self.orders.extend(made())
            return self.orders

        return orders

    def _note_rivals(self, captured: Captured, choices: Choices) -> None:
        """Store the peaks and overheads of Inductor's own orders by the fusion model."""
        if self.rivals or captured.others is None or choices.plan is not None:
            return
        for order in captured.others():
            plan = plan_in_order(captured, choices, order)
            self.rivals.append(Rival(tuple(order), plan.peak, plan.overhead))

    def attempt(
        self, compiler: Compiler, aim: int | None, order: Sequence[str] | None = None, *, reuse: bool = True
    ) -> Attempt | Callable[..., Any]:
        """Plan within `aim` bytes, or the budget, and compile; a graph without a backward is returned as compiled.

        Parameters
        ----------
        compiler : Compiler
        aim : int or None
        order : sequence of str, optional
            The runs, instead of a plan.
        reuse : bool
            As for `Compiler.compile`.
        """
        made: list[tuple[Captured, Plan, Choices]] = []

        def partition(joint: Any, given: Any, *, num_fwd_outputs: int, **options: Any) -> tuple[Any, Any]:
            captured = self.captured_of(joint, num_fwd_outputs)
            fuse(captured, given, num_fwd_outputs, **options).library = self.workspace
            whole = self._choices(captured)
            captured.others = self._own_orders(captured)
            if order is None:
                plan = make_plan(captured, whole if aim is None else replace(whole, budget=aim))
            else:
                plan = plan_in_order(captured, whole, order)
            if list(plan.runs) != list(captured.reference or ()):
                self._note_rivals(captured, whole)
            captured.tensors = None
            made.append((captured, plan, whole))
            return build(captured, emit(captured.joint, captured.members(plan.runs)))

        compiled = compiler.compile(partition, reuse=reuse)
        account = compiler.account(self.workspace)
        if not made or account is None:
            return compiled
        captured, plan, whole = made[0]
        budget = parse_budget(whole.budget) if isinstance(whole.budget, (int, str)) and whole.plan is None else None
        other = list(plan.runs) != list(captured.reference or ())
        return Attempt(compiled, _as_generated(plan, account), plan.peak, budget, other)


def compile_plan(compiler: Compiler, planner: Planner) -> tuple[Callable[..., Any], Plan | None]:
    """Plan and compile a graph so that the generated code stays within the budget.

    The fusion model predicts Inductor's code. If the generated code exceeds the budget, the plan is compiled once more
    without reuse of buffers; from then on all code is. If that exceeds the budget as well, the next plan has a smaller
    budget; if much of the budget is left, a larger one.

    Returns
    -------
    compiled, plan
        The plan has the peak of the generated code; it is None for a graph without a backward.

    Raises
    ------
    TooSmallError
        If no plan was found, or the code of every plan exceeds the budget.
    """
    best: Attempt | None = None
    last: Attempt | None = None
    aim: int | None = None
    refusal: TooSmallError | None = None
    unforeseen, reuse = 0, True
    for _ in range(ATTEMPTS):
        try:
            made = planner.attempt(compiler, aim, reuse=reuse)
            if reuse and isinstance(made, Attempt) and made.budget is not None and made.need > made.budget:
                reuse = False
                made = planner.attempt(compiler, None, made.plan.runs, reuse=reuse)
        except TooSmallError as error:
            if last is None:
                raise
            refusal = error
            break
        if not isinstance(made, Attempt):
            return made, None
        if made.budget is None:
            return made.compiled, made.plan
        last, left = made, made.budget - made.need
        if left >= 0 and (best is None or made.plan.overhead < best.plan.overhead):
            best = made
        difference = made.plan.peak - made.modelled
        unforeseen = difference if left >= 0 else max(unforeseen, difference)
        aim = made.budget - unforeseen - abs(unforeseen) // 20
        if best is not None and (left < 0 or left <= CLOSE * made.budget or not made.recomputes):
            break
    assert last is not None
    assert last.budget is not None
    best = _best_of_rivals(compiler, planner, best, last, reuse=reuse)
    if best is not None:
        return best.compiled, best.plan
    if refusal is not None:
        raise refusal
    excess = format_size(last.need - last.budget)
    raise TooSmallError(
        f"Inductor's code for the plan takes {excess} more than {planner.choices.budget}; a larger budget is needed",
        proved=False,
    )


def _best_of_rivals(
    compiler: Compiler, planner: Planner, best: Attempt | None, last: Attempt, *, reuse: bool
) -> Attempt | None:
    """Return the best plan, or an order of Inductor's own partitioner that is faster and whose code fits, too.

    The fusion model may take its peak for too high, or that of every plan for too low.
    """
    assert last.budget is not None
    reserve = last.need - last.plan.peak
    tries = 0
    for rival in sorted(planner.rivals, key=lambda rival: rival.overhead):
        if best is not None and rival.overhead >= best.plan.overhead:
            break
        known = best is not None and rival.runs == tuple(best.plan.runs)
        if known or rival.modelled + reserve > (1 + ABOVE) * last.budget:
            continue
        made = planner.attempt(compiler, None, rival.runs, reuse=reuse)
        if isinstance(made, Attempt) and made.need <= last.budget:
            return made
        tries += 1
        if tries == RIVALS:
            break
    return best


def _as_generated(plan: Plan, account: Account) -> Plan:
    """Return a plan with the peak of the code that was generated for it."""
    gradients = plan.split.get("gradients", 0)
    static = plan.peak - plan.split["activations"] - gradients
    split = {**plan.split, "activations": account.peak - gradients}
    return replace(plan, peak=static + account.peak, split=split)


def by_shape(graph: Any, inputs: list[Any], compile_fixed: Callable[[Any, list[Any]], Any]) -> Callable[..., Any]:
    """Compile a graph; if sizes are among its inputs, compile it once for each set of sizes in a call."""
    if not any(isinstance(given, torch.SymInt) for given in inputs):
        return compile_fixed(graph, inputs)  # type: ignore[no-any-return]
    known: dict[Any, Callable[..., Any]] = {}

    def run(*given: Any) -> Any:
        tensors = [part for part in given if isinstance(part, torch.Tensor)]
        sizes = tuple(tuple(part.shape) if isinstance(part, torch.Tensor) else part for part in given)
        key = (sizes, tuple(tensor.requires_grad for tensor in tensors), torch.is_grad_enabled())
        if key not in known:
            known[key] = compile_fixed(_with_sizes(graph, given), tensors)
        return known[key](*tensors)

    return run


def _with_sizes(graph: Any, given: Sequence[Any]) -> Any:
    """Return a graph in which numbers replace the inputs that are sizes."""
    fixed = fx.Graph()
    made: dict[Any, Any] = {}
    values = iter(given)
    for node in graph.graph.nodes:
        value = next(values) if node.op == "placeholder" else None
        is_size = value is not None and not isinstance(value, torch.Tensor)
        made[node] = value if is_size else fixed.node_copy(node, made.__getitem__)
    return fx.GraphModule(graph, fixed)

"""`remat.torch.backend`: a compiler for `torch.compile` that runs plans with eager kernels."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

from remat.bridges.torch.capture import (
    Captured,
    Source,
    compiler,
    ignored_functions,
    sources_of,
)
from remat.bridges.torch.graph_emission import emit
from remat.bridges.torch.graphs import build, compile_boxed
from remat.bridges.torch.inductor import Compiler, Planner, by_shape, compile_plan
from remat.bridges.torch.lightning_step import break_at_logs, lightning_hint
from remat.bridges.torch.plan_options import Choices, make_choices
from remat.bridges.torch.planning import Plan, make_plan, same_order
from remat.bridges.torch.recording import Node, Role, TorchError
from remat.bridges.torch.shim import fx, torch
from remat.bridges.torch.tracing import source_of
from remat.errors import OptionError

BUDGET_VARIABLE = "REMAT_TORCH_BUDGET"


@dataclass
class Backend:
    """A compiler for `torch.compile`: plans each training graph that it is given.

    Attributes
    ----------
    choices : Choices
    plans : list of Plan
        One for each training graph so far.
    module : torch.nn.Module or None
        Whose graphs these are, if known: messages and plans then name parameters.
    known : dict of str to Plan
        Plans by fingerprint that a copied or loaded module brings.
    """

    choices: Choices
    plans: list[Plan] = field(default_factory=list)
    module: Any = None
    on_plan: Callable[[Plan], None] | None = None
    frames: list[Any] = field(default_factory=list)
    warned: bool = False
    known: dict[str, Plan] = field(default_factory=dict)

    @property
    def plan(self) -> Plan | None:
        """The latest plan."""
        return self.plans[-1] if self.plans else None

    def __call__(self, graph: Any, inputs: list[Any], **_: Any) -> Callable[..., Any]:
        """Compile a graph of Dynamo's."""
        choices = self._choices_for(graph)
        if self.choices.inductor:
            return by_shape(graph, inputs, lambda fixed, real: self._through_inductor(fixed, real, choices))
        if any(isinstance(given, torch.SymInt) for given in inputs):
            return _by_shape(graph, lambda fixed, real: self._compile(fixed, real, choices, again=True))
        return self._compile(graph, inputs, choices)

    def _compile(
        self, graph: Any, inputs: list[Any], choices: Callable[[], Choices], *, again: bool = False
    ) -> Callable[..., Any]:
        sources = _by_kind(self.module, inputs)

        def partition(joint: Any, _: Any, *, num_fwd_outputs: int, **__: Any) -> tuple[Any, Any]:
            if _has_symbols(joint):
                return _unplanned(joint, num_fwd_outputs)
            captured = Captured(self.module, joint, num_fwd_outputs, sources, None)
            captured.tensors = inputs
            plan = self.known.get(captured.fingerprint) or self._plan(captured, choices(), again=again)
            captured.tensors = None
            self.plans.append(plan)
            if self.on_plan is not None:
                self.on_plan(plan)
            return _graphs_of(captured, plan)

        return compiler(compile_boxed, partition)(graph, inputs)  # type: ignore[no-any-return]

    def _through_inductor(self, graph: Any, inputs: list[Any], choices: Callable[[], Choices]) -> Callable[..., Any]:
        """Compile with Inductor; a graph without a backward takes no budget."""
        if self.choices.host is not None:
            raise OptionError("plans with a host run with PyTorch's own kernels: inductor=False", argument="host")
        sources = _by_kind(self.module, inputs)

        def captured_of(joint: Any, forward_outputs: int) -> Captured:
            captured = Captured(self.module, joint, forward_outputs, sources, None)
            captured.tensors = inputs
            return captured

        training = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
        chosen = choices() if training else replace(self.choices, budget=None)
        compiled, plan = compile_plan(Compiler(graph, inputs), Planner(captured_of, chosen))
        if plan is not None:
            self.plans.append(plan)
            if self.on_plan is not None:
                self.on_plan(plan)
        return compiled

    def _plan(self, captured: Captured, choices: Choices, *, again: bool) -> Plan:
        """Plan a graph; if its sizes change between calls, plan for the largest so far if that fits."""
        if not again or not self.plans:
            return make_plan(captured, choices)
        largest = max(self.plans, key=lambda plan: plan.peak)
        plan = same_order(captured, largest, choices)
        if plan is not None:
            return plan
        if not self.warned:
            self.warned = True
            inputs = [node.tensors[0] for node in captured.recording.nodes if _is_input(node)]
            shapes = [list(held.shape) for held in inputs if held is not None]
            warnings.warn(
                f"a size is not fixed, and with inputs of {', '.join(map(str, shapes[:3]))} the plan of the largest so "
                "far does not fit: a new one is made; call it with the largest first, or pass dynamic=False to "
                "torch.compile, and each shape has its plan from the start",
                stacklevel=2,
            )
        return make_plan(captured, choices)

    def _choices_for(self, graph: Any) -> Callable[[], Choices]:
        """Find the budget of a training graph; a second graph in one step needs a separate budget."""
        frame = _frame()
        resumed = frame is not None and frame[1].startswith("torch_dynamo_resume")

        def choices() -> Choices:
            """Ask of training graphs only: others take no budget."""
            if frame not in self.frames:
                self.frames.append(frame)
            number = self.frames.index(frame)
            budgets = self.choices.budget
            if budgets is None or isinstance(budgets, (int, str)):
                if number or resumed:
                    raise TorchError(
                        f"a second training graph in one step{_begin(graph)}: the module breaks into several, and one "
                        "budget cannot be for all of them; fullgraph=True shows why, and budget=['3GB', '5GB'] gives "
                        f"each its own{lightning_hint()}"
                    )
                return self.choices
            if number >= len(budgets):
                raise TorchError(
                    f"training graph {number + 1} in one step{_begin(graph)}, and {len(budgets)} budgets: give one each"
                )
            return replace(self.choices, budget=budgets[number])

        return choices


def _graphs_of(captured: Captured, plan: Plan) -> tuple[Any, Any]:
    """Return the graphs of forward and backward."""
    if plan.program is None:
        return build(captured, emit(captured.joint, plan.runs))
    from remat.bridges.torch.hosted_emission import build_program

    return build_program(captured, plan.program)


def _frame() -> tuple[str, str, int] | None:
    """Return file, name and line of the function that is compiled: the same whenever it is compiled again."""
    translator: Any = import_module("torch._dynamo.symbolic_convert").InstructionTranslator
    try:
        code = translator.current_tx().f_code
    except AttributeError:  # nothing is translated
        return None
    return str(code.co_filename), str(code.co_name), int(code.co_firstlineno)


def _is_input(node: Node) -> bool:
    return node.role is Role.INPUT and node.operator == "input"


def _by_shape(graph: Any, compile_fixed: Callable[[Any, list[Any]], Callable[..., Any]]) -> Callable[..., Any]:
    """Return a function that compiles a graph with unknown sizes for each set of sizes with which it is called."""
    known: dict[Any, Callable[..., Any]] = {}

    def run(*given: Any) -> Any:
        tensors = [part for part in given if isinstance(part, torch.Tensor)]
        sizes = tuple(part if not isinstance(part, torch.Tensor) else tuple(part.shape) for part in given)
        key = (sizes, tuple(tensor.requires_grad for tensor in tensors), torch.is_grad_enabled())
        if key not in known:
            known[key] = compile_fixed(_with_sizes(graph, given), tensors)
        return known[key](*tensors)

    return run


def _with_sizes(graph: Any, given: tuple[Any, ...]) -> Any:
    """Return a graph in which numbers replace the inputs that are sizes."""
    fixed = fx.Graph()
    made: dict[Any, Any] = {}
    values = iter(given)
    for node in graph.graph.nodes:
        value = next(values) if node.op == "placeholder" else None
        if value is not None and not isinstance(value, torch.Tensor):
            made[node] = value
        else:
            made[node] = fixed.node_copy(node, made.__getitem__)
    return fx.GraphModule(graph, fixed)


def _begin(graph: Any) -> str:
    """Return where in the user's code a graph begins: directly after a graph break, if it is not the first."""
    places = (source_of(node) for node in graph.graph.nodes if node.op not in ("placeholder", "output"))
    found = next((place for place in places if place), "")
    return f", which begins at {found}" if found else ""


def _by_kind(module: Any, inputs: list[Any]) -> tuple[Source, ...]:
    """Distinguish parameters and buffers from other inputs."""
    if module is None:
        parameter = torch.nn.Parameter
        return tuple(Source("parameter" if isinstance(tensor, parameter) else "input") for tensor in inputs)
    known = sources_of(module, (), inputs)
    return tuple(Source("input") if source.kind == "constant" else source for source in known)


def _has_symbols(joint: Any) -> bool:
    kinds = (torch.SymInt, torch.SymFloat)
    return any(isinstance(node.meta.get("val"), kinds) for node in joint.graph.nodes if node.op == "placeholder")


def _unplanned(joint: Any, forward_outputs: int) -> tuple[Any, Any]:
    sizes = [str(node.meta["val"]) for node in joint.graph.nodes if isinstance(node.meta.get("val"), torch.SymInt)]
    warnings.warn(
        f"a size is not fixed ({', '.join(sizes[:3])}), so this graph runs without a plan; pass dynamic=False to "
        "torch.compile, and each shape gets a plan of its own",
        stacklevel=2,
    )
    partitioners: Any = import_module("torch._functorch.partitioners")
    found: tuple[Any, Any] = partitioners.default_partition(joint, [], num_fwd_outputs=forward_outputs)
    return found


def backend(budget: int | str | Sequence[int | str] | None = None, **choices: Any) -> Backend:
    """Return a backend for `torch.compile`.

    Parameters
    ----------
    budget : int, str or sequence of these, optional
        Bytes of the device, ``"8GB"``, or ``"70%"`` of what it takes when nothing is recomputed: parameters, buffers,
        inputs, gradients, states of the optimizer and activations together. Without it nothing is recomputed. A list
        has one for each training graph of a step, where the module breaks into several.
    algorithm, time_limit, costs, optimizer, reserve, accumulate, plan, cache, inductor
        See `Choices`.
    """
    break_at_logs()
    return Backend(make_choices(budget, choices))


def __getattr__(name: str) -> Any:
    """Return the compiler that is registered as ``"remat"``, which `torch.compile` looks up before it traces anything.

    At this point, Dynamo is set to ignore logging calls, and an invalid budget is refused.
    """
    if name != "registered":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _choices_by_name()
    _pass_over_loggers()
    return _registered


def _pass_over_loggers() -> None:
    config: Any = import_module("torch._dynamo.config")
    config.ignore_logging_functions = ignored_functions(config)
    break_at_logs()


def _registered(graph: Any, inputs: list[Any], **_: Any) -> Callable[..., Any]:
    """Compile as backend ``"remat"``, with the choices of `configure` or the budget of the environment."""
    choices = _choices_by_name()
    if choices is None:
        raise TorchError(f"no budget: set {BUDGET_VARIABLE}=8GB, or call remat.torch.configure(budget='8GB')")
    return Backend(replace(choices))(graph, inputs)


def _choices_by_name() -> Choices | None:
    """Return the choices of `configure`, or the budget of the environment."""
    import os

    if "choices" in _CONFIGURED:
        return _CONFIGURED["choices"]
    budget = os.environ.get(BUDGET_VARIABLE)
    if not budget:
        return None
    try:
        return Choices(budget=budget)
    except OptionError as error:
        raise OptionError(error.message, argument=BUDGET_VARIABLE) from None


_CONFIGURED: dict[str, Choices] = {}


def configure(budget: int | str | None = None, **choices: Any) -> None:
    """Set the choices of backend ``"remat"``, for Trainer or Lightning arguments that accept only a name.

    As when the backend is looked up by name, Dynamo then ignores logging calls, which would break a module into several
    graphs.
    """
    made = make_choices(budget, choices)
    if isinstance(made.budget, Sequence) and not isinstance(made.budget, str):
        raise OptionError("several budgets go with remat.torch.backend or compile", argument="budget")
    _pass_over_loggers()
    _CONFIGURED["choices"] = made


__all__ = ["Backend", "backend", "configure", "make_choices"]

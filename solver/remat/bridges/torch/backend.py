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
from remat.bridges.torch.graphs import compile_boxed
from remat.bridges.torch.host_updates.delivery import Updates
from remat.bridges.torch.hosted_emission import build_program
from remat.bridges.torch.inductor import Compiler, Planner, by_shape, compile_plan
from remat.bridges.torch.lightning_step import break_at_logs
from remat.bridges.torch.observation import Watch
from remat.bridges.torch.orders import Key, Orders, Runs
from remat.bridges.torch.plan_options import Choices, make_choices
from remat.bridges.torch.planning import Plan, make_plan
from remat.bridges.torch.ranks import agree, is_distributed
from remat.bridges.torch.recording import OPAQUE, Node, Role, TorchError
from remat.bridges.torch.shim import torch
from remat.bridges.torch.sized_orders import Orderable, least_of
from remat.bridges.torch.steps import MOST_SEQUENCES, Call, Composition, Step, plan_step
from remat.bridges.torch.surroundings import Observed, Surroundings
from remat.bridges.torch.tracing import source_of
from remat.errors import OptionError
from remat.solving.relative_budget import share_of
from remat.units import parse_budget

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
        The module of these graphs, if known: messages and plans then name its parameters.
    largest : int
        The largest peak without recomputation so far: a budget in percent is a share of it.
    parts : bool
        Whether it is known that the module breaks into several graphs: the first call of each then holds little.
    step : Step
        The calls of the present step, and the steps that are planned.
    known : dict of str to Plan
        Plans by fingerprint that a copied or loaded module brings.
    watch : Watch or None
        The observer of the steps, if one is active.
    sharded : bool
        Whether FSDP2 shards the module: one step is observed before the graphs are planned.
    outside : Surroundings or None
        The observer of this step, or of the last one.
    unknown : bool
        Whether the last step is not known yet, and was not observed.
    updates : Updates
        The optimizer at the host, if the choices say so.
    """

    choices: Choices
    plans: list[Plan] = field(default_factory=list, repr=False)
    module: Any = field(default=None, repr=False)  # PyTorch shows a backend in its messages
    on_plan: Callable[[Plan], None] | None = field(default=None, repr=False)
    frames: list[Any] = field(default_factory=list, repr=False)
    warned: bool = field(default=False, repr=False)
    largest: int = field(default=0, repr=False)
    parts: bool = field(default=False, repr=False)
    step: Step = field(default_factory=Step, repr=False)
    known: dict[str, Plan] = field(default_factory=dict, repr=False)
    watch: Watch | None = field(default=None, repr=False)
    sharded: bool = field(default=False, repr=False)
    outside: Surroundings | None = field(default=None, repr=False)
    unknown: bool = field(default=False, repr=False)
    updates: Updates = field(default_factory=Updates, repr=False)

    @property
    def observing(self) -> Surroundings | None:
        """The observer of the present step."""
        return self.outside if self.outside is not None and self.outside.active else None

    @property
    def plan(self) -> Plan | None:
        """The latest plan."""
        return self.plans[-1] if self.plans else None

    def __deepcopy__(self, memo: dict[int, Any]) -> Backend:
        """Return a backend for the copy of a module: with the plans, without compiled graphs."""
        make, given = self.__reduce__()
        return make(*given)

    def __reduce__(self) -> tuple[Callable[..., Backend], tuple[Any, ...]]:
        """Save the choices and the plans."""
        return _known_backend, (replace(self.choices), [*self.known.values(), *self.plans])

    def __call__(self, graph: Any, inputs: list[Any], **_: Any) -> Callable[..., Any]:
        """Compile a graph of Dynamo's."""
        choices = self._choices_for(graph)
        if self.choices.inductor:
            return by_shape(graph, inputs, lambda fixed, real: self._through_inductor(fixed, real, choices))
        return self._compile(graph, inputs, choices)

    def _compile(self, graph: Any, inputs: list[Any], choices: Callable[[], Choices]) -> Callable[..., Any]:
        sources = _by_kind(self.module, inputs)
        made: list[Orders] = []

        def partition(joint: Any, _: Any, *, num_fwd_outputs: int, **__: Any) -> tuple[Any, Any]:
            captured, chosen = Captured(self.module, joint, num_fwd_outputs, sources, None), choices()
            if chosen.host is not None:
                return self._with_host(captured, chosen, inputs)
            made.append(Orders(captured, chosen, self))
            return made[0].graphs()

        def forward(module: Any, given: Any) -> Any:
            return made[0].forward(module, given) if made else compile_boxed(module)

        def backward(module: Any, given: Any) -> Any:
            return made[0].backward(module, given) if made else compile_boxed(module)

        return compiler(forward, partition, backward)(graph, inputs)  # type: ignore[no-any-return]

    def _with_host(self, captured: Captured, choices: Choices, inputs: list[Any]) -> tuple[Any, Any]:
        """Plan a graph with a host, and return its forward and backward graphs."""
        if captured.symbols is not None:
            raise TorchError("plans with a host are for fixed sizes: compile with dynamic=False")
        captured.check_alone("plans with a host are for")
        if choices.optimizer_memory is not None and (self.module is None or self.parts):
            why = "is known to remat.torch.compile only" if self.module is None else "breaks into several graphs here"
            raise TorchError(f"with the optimizer at the host, a module runs as one graph; it {why}")
        captured.tensors = inputs
        plan = make_plan(captured, choices)
        captured.tensors = None
        self._add(plan)
        assert plan.program is not None
        return build_program(captured, plan.program, None if choices.optimizer_memory is None else self.updates.number)

    def enter(self, orders: Orders, key: Key, arguments: list[Any]) -> Runs:
        """Choose the order of a call: that of a known step, or one that suits the graphs of this step so far."""
        last = self.step.begin()
        one = self._one()
        if one and not self.sharded and (len(last) > 1 or (last and self.parts)):
            self._learn(last, orders.choices)
        call = self.step.add(orders, key, arguments)
        if self.observing is not None:
            self.observing.given(len(self.step.calls) - 1, arguments)
        runs = self.step.planned() if one else None
        self.unknown = self.unknown or runs is None
        if runs is None and one and (self.parts or len(self.step.calls) > 1):
            return self._least(call, check=not self.sharded)
        return runs or self._alone(call)

    def _one(self) -> bool:
        """Whether one budget is for all graphs of a step, and no plan is given."""
        return isinstance(self.choices.budget, (int, str)) and self.choices.plan is None

    def prepare(self, given: Any) -> None:
        """Before a call of a sharded module: plan the last step if it was observed, or observe this one."""
        if not torch.is_grad_enabled():
            return
        last, outside = self.step.begin(), self.outside
        if outside is not None:
            outside.leave()
            self.outside = None
            if last and outside.saw(len(last)):
                self._learn(last, last[0].orders.choices, outside.observed)
            elif last and not self.warned:
                self.warned = True
                warnings.warn(
                    "a step of the sharded module was not one forward and its backward: until such a step runs, each "
                    "graph runs with its smallest peak",
                    stacklevel=4,
                )
        if last and self._one() and tuple(call.name for call in last) not in self.step.known:
            self.unknown = True
        if self._one() and (self.unknown or not self.step.known):
            self.unknown = False
            self.outside = Surroundings(self.module, given)
            self.outside.begin()

    def turn(self, token: Any, gradients: tuple[Any, ...]) -> None:
        """Record the gradients that the backward of a call returned."""
        if self.observing is not None:
            self.observing.turn(self.step.number_of(token), gradients)

    def leave(self, outputs: tuple[Any, ...], token: Any) -> None:
        """Record the results and saved tensors of a call."""
        self.step.leave(outputs, token)
        if self.observing is not None:
            self.observing.returned(len(self.step.calls) - 1, outputs[: self.step.calls[-1].orders.outputs])

    def _learn(self, calls: list[Call], choices: Choices, observed: Observed | None = None) -> None:
        """Plan all graphs of a step that was seen, for the next ones."""
        sequence = tuple(call.name for call in calls)
        if sequence in self.step.known or len(self.step.known) >= MOST_SEQUENCES:
            return
        whole = Composition(calls, choices, observed)
        self.largest = max(self.largest, whole.kept.peak_memory["memory"])
        for call in calls:
            self._least(call, check=False)
        least = [call.orders.least[call.key][0] for call in calls]
        plan, runs, chosen = self._agreed(lambda: plan_step(whole, least, choices, self.largest))
        if chosen != runs:
            plan, runs = whole.plan(chosen)
        self.step.known[sequence] = runs
        self._add(plan)

    def _agreed(self, make: Callable[[], tuple[Plan, Sequence[Runs]]]) -> tuple[Plan, Sequence[Runs], Sequence[Runs]]:
        """Return the plan of this rank, its orders, and those that all ranks run."""
        if self.module is not None and is_distributed(self.module):
            return agree(self.module, self.choices, make)
        plan, runs = make()
        return plan, runs, runs

    def _least(self, call: Call, *, check: bool = True) -> Runs:
        """Return the order of a call with the smallest peak; it must fit into memory together with earlier graphs."""
        orders = call.orders
        if call.key not in orders.least:
            orders.least[call.key] = least_of(call.captured, orders.choices)
        runs, peak = orders.least[call.key]
        if check:
            self.step.check(peak, orders.choices, _begin(call.captured.graph))
        return runs

    def _alone(self, call: Call) -> Runs:
        orders, captured = call.orders, call.captured
        if call.key not in orders.alone:
            plan = self.known.get(captured.fingerprint)
            if plan is None:
                plan = self._alone_agreed(captured, orders)
            self._add(plan)
            orders.alone[call.key] = plan.runs
        return orders.alone[call.key]

    def _alone_agreed(self, captured: Captured, orders: Orders) -> Plan:
        """Plan the only graph of a step; for the first sizes, the ranks of a distributed module agree."""
        if orders.alone:
            return self._plan_of_sizes(captured, orders.choices, again=True)

        def make() -> tuple[Plan, Sequence[Runs]]:
            plan = self._plan_of_sizes(captured, orders.choices, again=False)
            return plan, [plan.runs]

        plan, runs, chosen = self._agreed(make)
        return plan if chosen == runs else Orderable(captured, orders.choices).ordered(chosen[0])

    def _add(self, plan: Plan) -> None:
        self.plans.append(plan)
        if self.on_plan is not None:
            self.on_plan(plan)

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
            self._add(plan)
        return compiled

    def _plan_of_sizes(self, captured: Captured, choices: Choices, *, again: bool) -> Plan:
        """Plan a graph for specific sizes.

        A relative budget refers to the peak of the largest sizes yet. If sizes are not fixed, the function prefers a
        known order that fits the budget.
        """
        share = share_of(choices.budget)
        if share is None and captured.symbols is None:
            return make_plan(captured, choices)
        step = Orderable(captured, choices)
        if share is None:
            budget = None if choices.budget is None else parse_budget(choices.budget)
        else:
            whole = step.kept.peak_memory["memory"]
            if whole < self.largest:
                choices = replace(choices, budget=step.budget(share, self.largest))
            self.largest = max(whole, self.largest)
            budget = step.budget(share, self.largest)
        if captured.symbols is None:
            return make_plan(captured, choices)
        if choices.plan is not None and self.plans:
            budget = max(plan.peak for plan in self.plans)
        plan = None if budget is None else step.within(budget, self.plans)
        if plan is None:
            if again and not self.warned:
                self._warn(captured)
            plan = make_plan(captured, choices)
        return plan

    def _warn(self, captured: Captured) -> None:
        """Warn once that new sizes needed a separate plan."""
        self.warned = True
        inputs = [node.tensors[0] for node in captured.recording.nodes if _is_input(node)]
        shapes = [list(held.shape) for held in inputs if held is not None]
        warnings.warn(
            f"with inputs of {', '.join(map(str, shapes[:3]))} no known order of the operators fits the budget, so a "
            "new one is planned; call the module with the largest sizes first to plan once",
            stacklevel=2,
        )

    def _choices_for(self, graph: Any) -> Callable[[], Choices]:
        """Find the budget of a training graph: with a list of budgets, each graph of a step has its own."""
        frame = _frame()

        def choices() -> Choices:
            """Return the choices; only training graphs have a budget."""
            if frame not in self.frames:
                self.frames.append(frame)
            number = self.frames.index(frame)
            budgets = self.choices.budget
            if budgets is None or isinstance(budgets, (int, str)):
                return self.choices
            if number >= len(budgets):
                raise TorchError(
                    f"training graph {number + 1} in one step{_begin(graph)}, and {len(budgets)} budgets: give one each"
                )
            return replace(self.choices, budget=budgets[number])

        return choices


def _known_backend(choices: Choices, plans: Sequence[Plan]) -> Backend:
    """Return a backend that has plans."""
    return Backend(choices, known={plan.fingerprint: plan for plan in plans})


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
    found: list[Source] = []
    for tensor, source in zip(inputs, sources_of(module, (), inputs), strict=True):
        found.append(Source("input") if source.kind == "constant" else source)
        if hasattr(tensor, "device_mesh"):  # its mesh is a separate input
            found.append(Source(OPAQUE))
    return tuple(found)


def backend(budget: int | str | Sequence[int | str] | None = None, **choices: Any) -> Backend:
    """Return a backend for `torch.compile`.

    Parameters
    ----------
    budget : int, str or sequence of these, optional
        Bytes of the device, ``"8GB"``, or ``"70%"`` of the peak without recomputation. It covers parameters, buffers,
        inputs, gradients, states of the optimizer and activations. By default nothing is recomputed. A list has one
        budget for each training graph of a step, if the module breaks into several.
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
    if not _NAMED or _NAMED[0].choices != choices:
        _NAMED[:] = [Backend(choices)]
    return _NAMED[0](graph, inputs)


_NAMED: list[Backend] = []
"""The backend that compiles by name: one for all graphs, since a step may have several."""


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


__all__ = ["Backend", "backend", "configure"]

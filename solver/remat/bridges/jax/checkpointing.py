"""`remat.jax.checkpoint`: a function whose gradient stays within a memory budget."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from remat.bridges.jax.evaluation import shape_of
from remat.bridges.jax.loops import Groups
from remat.bridges.jax.planning import Again, Keep, Model, tree_of
from remat.bridges.jax.shim import JaxError, jax
from remat.generate.devices import DEFAULT
from remat.schedule.document import Run
from remat.solving.reference_words import WITHOUT_RECOMPUTATION
from remat.solving.result import Result
from remat.units import Units, format_budget, format_size, format_time, parse_bandwidth

CPU_OPTIONS = {"xla_disable_hlo_passes": "cse_barrier_expander"}
"""Options of the compiler with which XLA on the CPU keeps the barriers of `jax.checkpoint`."""


@dataclass(frozen=True)
class Plan:
    """Checkpoints of a function.

    Attributes
    ----------
    result : Result
        The verified schedule of the chain of stages.
    parts : tuple
        Stages under their policies, and stages that run again together.
    """

    result: Result
    parts: tuple[Keep | Again, ...]
    model: Model

    @property
    def peak(self) -> int:
        """Predicted bytes of intermediate results in the gradient step: without arguments, gradients and results."""
        return int(next(iter(self.result.peak_memory.values())))

    @property
    def overhead(self) -> float:
        """Predicted time of recomputation, as a share of the time without."""
        kept = self._kept
        return float(self.result.makespan or 0) / kept - 1 if kept else 0.0

    @property
    def _kept(self) -> float:
        """Nanoseconds of all stages without recomputation."""
        return float(sum(part.forward + part.backward for part in self.model.parts))

    @property
    def summary(self) -> str:
        """The peak, the overhead, and the policy of each stage."""
        share = f"{self.overhead:.2%}".replace("-0.00%", "0.00%")
        time = format_time(self._kept, Units(time="ns"))
        lines = [f"peak {format_budget(self.peak)}, overhead {share} over the {time} {WITHOUT_RECOMPUTATION}"]
        found = Counter(self._lines(self.parts, ""))
        return "\n".join([*lines, *(f"{count} x {line}" for line, count in found.items())])

    def _lines(self, parts: Sequence[Keep | Again], under: str) -> list[str]:
        lines = []
        for part in parts:
            if isinstance(part, Again):
                lines += self._lines(part.parts, f"{under}in a checkpoint: ")
                continue
            choice = self.model.choices[part.stage][part.choice][0]
            if isinstance(choice, Groups):
                for count, option in zip(choice.counts, choice.options, strict=True):
                    blocks = f" in blocks of {choice.block}" if choice.block else ""
                    lines.append(f"{under}{count} layers{blocks}, {_said(option)}")
            else:
                lines.append(f"{under}stage, {_said(choice)}")
        return lines


def _said(option: Any) -> str:
    if not option.names:
        return "recomputes all"
    count = len(option.names)
    results = f"{count} result{'' if count == 1 else 's'}"
    return f"{'offloads' if option.hosted else 'saves'} {results}, {format_size(option.saved)}"


class Checkpointed:
    """A function with planned checkpoints; each set of shapes has its own plan.

    Attributes
    ----------
    plan : Plan or None
        The latest plan.
    """

    def __init__(self, function: Callable[..., Any], budget: int | str | None, device: str, link: float | None) -> None:
        functools.update_wrapper(self, function)
        self.function, self.budget, self.device, self.link = function, budget, device, link
        self.plan: Plan | None = None
        self._plans: dict[Any, tuple[Plan, Any]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function under its checkpoints."""
        flat, tree = jax.tree.flatten((args, kwargs))
        arrays = [index for index, each in enumerate(flat) if _is_array(each)]
        shapes = tuple(shape_of(jax.typeof(flat[index])) for index in arrays)
        fixed = tuple((index, each) for index, each in enumerate(flat) if not _is_array(each))
        closed, outer = self._trace(flat, tree, arrays, shapes)
        # Variables of the function's closure may have changed since its last call.
        key = (tree, shapes, repr(fixed), str(closed))
        if key not in self._plans or closed.consts:
            self._plans[key] = (self._plan(closed), outer)
        self.plan, outer = self._plans[key]
        found = self.plan.model.run(self.plan.parts, [flat[index] for index in arrays])
        return jax.tree.unflatten(outer, found)

    def _trace(self, flat: list[Any], tree: Any, arrays: list[int], shapes: Sequence[Any]) -> tuple[Any, Any]:
        outer: list[Any] = []

        def run(*given: Any) -> Any:
            full = list(flat)
            for index, each in zip(arrays, given, strict=True):
                full[index] = each
            args, kwargs = jax.tree.unflatten(tree, full)
            leaves, structure = jax.tree.flatten(self.function(*args, **kwargs))
            outer[:] = [structure]
            return leaves

        return jax.make_jaxpr(run)(*shapes), outer[0]

    def _plan(self, closed: Any) -> Plan:
        model = Model(closed, self.device, self.link)
        result = model.solve(self.budget)
        if result.makespan is None:
            least = result.least_budget
            known = f"; the smallest that is known is {format_budget(least.size)}" if least is not None else ""
            raise JaxError(f"no policy keeps the budget of {self.budget}{known}")
        runs = [step.task for step in result.steps if isinstance(step, Run)]
        return Plan(result, tree_of(runs), model)


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def checkpoint(
    function: Callable[..., Any],
    budget: int | str | None = None,
    *,
    device: str = DEFAULT,
    host: float | str | None = None,
) -> Checkpointed:
    """Return a function whose gradient needs at most `budget` bytes of intermediate results.

    Parameters
    ----------
    function : callable
        A function of arrays, usually the loss; differentiate what is returned.
    budget : int or str, optional
        Bytes, ``"8GB"``, or ``"70%"`` of the peak without recomputation. Arguments, gradients and results are not
        counted. Without one, the plan is the fastest.
    device : str
        Device of the shipped table whose rates give the times.
    host : float or str, optional
        Bandwidth to the host, such as ``"25GB/s"``: policies may then offload.

    Raises
    ------
    JaxError
        At a call, if no policy keeps the budget.

    Notes
    -----
    The plan is a chain of stages. Each stage is a function under `jax.checkpoint` that saves the results that the plan
    names, and stages that run again together are nested in another one. Derivatives are those of JAX.
    """
    link = None if host is None else parse_bandwidth(host)
    return Checkpointed(function, budget, device, None if link is None else float(link))


def temporary_bytes(function: Callable[..., Any], *args: Any, **kwargs: Any) -> int:
    """Compile a function, and return the bytes that XLA allocates beyond arguments and results.

    Parameters
    ----------
    function : callable
        Usually ``jax.value_and_grad`` of something. On the CPU, it is compiled with `CPU_OPTIONS`.
    *args, **kwargs
        Arrays, or `jax.ShapeDtypeStruct`.
    """
    lowered = jax.jit(function).lower(*args, **kwargs)
    options = CPU_OPTIONS if jax.default_backend() == "cpu" else None
    return int(lowered.compile(compiler_options=options).memory_analysis().temp_size_in_bytes)

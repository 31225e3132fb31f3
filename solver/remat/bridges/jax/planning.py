"""From a function to a plan: stages, their options, a chain instance that is solved, and nested checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from remat.bridges.jax.evaluation import inline, shape_of, value_of, variables
from remat.bridges.jax.loops import Costs, Groups, Layers
from remat.bridges.jax.options import Option, Part, analyse, is_float
from remat.bridges.jax.policies import checkpointed
from remat.bridges.jax.primitives import size_of
from remat.bridges.jax.program import Program, flatten
from remat.bridges.jax.shim import JaxError, jax
from remat.bridges.jax.stages import Cut, Stage, cut
from remat.generate.devices import Rates, rates
from remat.instance import Instance, load
from remat.solving.entry import solve
from remat.solving.result import Result

TYPES = {"bfloat16": "bf16", "float16": "fp16"}
MOST = 120
"""Choices of a stage."""

_Function = tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Keep:
    """A stage under one policy."""

    stage: int
    choice: int

    @property
    def first(self) -> int:
        """The stage."""
        return self.stage

    last = first


@dataclass(frozen=True, slots=True)
class Again:
    """Stages that are recomputed together before their backwards, with their nested policies."""

    parts: tuple[Keep | Again, ...]

    @property
    def first(self) -> int:
        """The first stage."""
        return self.parts[0].first

    @property
    def last(self) -> int:
        """The last stage."""
        return self.parts[-1].last


def rates_of(program: Program, device: str) -> Rates:
    """Return the rates of a device for the type of most products."""
    common = program.work.most_common(1)
    return rates(device, TYPES.get(common[0][0], "fp32") if common else "fp32")


class Model:
    """A function as a chain of stages with options.

    Parameters
    ----------
    closed : ClosedJaxpr
        The forward.
    device : str
        A device of the shipped table.
    link : float, optional
        Bytes per second to a host; None: there is no host.
    """

    def __init__(self, closed: Any, device: str, link: float | None = None) -> None:
        self.closed = inline(closed)
        self.link = link
        self.rates = rates_of(flatten(self.closed), device)
        self.cut: Cut = cut(self.closed.jaxpr)
        if not self.cut.stages:
            raise JaxError("the function has no operations")
        self.known: dict[tuple[str, tuple[int, ...]], Part] = {}
        self.given = {*self.closed.jaxpr.invars, *self.closed.jaxpr.constvars}
        self.layers: dict[int, Layers] = {}
        self.choices: list[list[tuple[Option | Groups, Costs]]] = []
        self.parts: list[Part] = []
        for index, stage in enumerate(self.cut.stages):
            self._stage(index, stage)

    def _stage(self, index: int, stage: Stage) -> None:
        if stage.scan is not None:
            layers = self.layers[index] = Layers.of(stage, self.rates)
            listed: list[tuple[Option | Groups, Costs]] = list(layers.choices(self._hosted))
            part = layers.part
            scaled = replace(part, forward=part.forward * layers.length, backward=part.backward * layers.length)
            self.parts.append(scaled)
        else:
            part = self._part(stage)
            self.parts.append(part)
            options = [*part.options, *filter(None, map(self._hosted, part.options))]
            listed = [
                (each, Costs(0 if each.hosted else each.saved, part.backward + each.again, each.workspace))
                for each in options
            ]
        self.choices.append(_best(listed))

    def _part(self, stage: Stage) -> Part:
        """Analyse a stage; equal stages share one analysis."""
        avals = [shape_of(each.aval) for each in stage.reads]

        def run(*given: Any) -> list[Any]:
            return stage.run(given)

        flowing = tuple(index for index, each in enumerate(stage.reads) if each not in self.given)
        key = str(jax.make_jaxpr(run)(*avals)), flowing
        if key not in self.known:
            self.known[key] = analyse(run, avals, self.rates, flowing=flowing)
        return self.known[key]

    def _hosted(self, option: Option) -> Option | None:
        """Return the option that offloads its saved values to the host, including transfer times."""
        if self.link is None or not option.names:
            return None
        away = round(2 * option.saved / self.link * 1e9)
        return replace(option, again=option.again + away, workspace=option.workspace + option.saved, hosted=True)

    # --- the instance -------------------------------------------------------------------------------------------------

    @cached_property
    def instance(self) -> Instance:
        """The chain of the stages, with their choices as variants."""
        stages = []
        for stage, part, listed in zip(self.cut.stages, self.parts, self.choices, strict=True):
            variants = [
                {"saved_size": cost.saved, "backward_time": cost.backward, "backward_workspace": cost.workspace}
                for _, cost in listed
            ]
            stages.append(
                {
                    "forward_time": part.forward,
                    "output_size": sum(size_of(each.aval) for each in stage.passing),
                    "gradient_size": sum(size_of(each.aval) for each in stage.passing if is_float(each.aval)),
                    "forward_workspace": part.forward_workspace,
                    **variants[0],
                    "variants": variants,
                }
            )
        fixed = sum(size_of(each.aval) * (2 if is_float(each.aval) else 1) for each in self.cut.throughout)
        document = {
            "schema": "remat.instance/2",
            "kind": "chain",
            "units": {"time": "ns", "memory": "B"},
            "input_size": 0,
            "input_gradient": False,
            "static_memory": fixed,
            "backward_reads": ["input", "saved"],
            "stages": stages,
        }
        return load(document)

    def solve(self, budget: int | str | None) -> Result:
        """Solve the chain."""
        given: dict[str, Any] = {} if budget is None else {"budget": budget}
        return solve(self.instance, algorithm="rotor", **given)

    # --- execution ----------------------------------------------------------------------------------------------------

    def run(self, tree: Sequence[Keep | Again], arguments: Sequence[Any]) -> list[Any]:
        """Run the function with the policies of a plan."""
        jaxpr = self.closed.jaxpr
        known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*self.closed.consts, *arguments], strict=True))
        _run(map(self._function, tree), known)
        return [value_of(each, known) for each in jaxpr.outvars]

    def _function(self, part: Keep | Again) -> _Function:
        """Return a part as a function of its inputs, with its inputs and outputs."""
        if isinstance(part, Keep):
            stage, index = self.cut.stages[part.stage], part.stage
            choice = self.choices[index][part.choice][0]
            if isinstance(choice, Groups):
                groups = choice
                return lambda *given: self.layers[index].run(given, groups), stage.reads, stage.writes
            names = choice.names
            return checkpointed(lambda *given: stage.run(given, names), choice), stage.reads, stage.writes
        covered = self.cut.stages[part.first : part.last + 1]
        made = {variable for stage in covered for variable in stage.writes}
        reads = tuple(dict.fromkeys(each for stage in covered for each in stage.reads if each not in made))
        outside = {each for stage in self.cut.stages[part.last + 1 :] for each in stage.reads}
        outside.update(variables(self.closed.jaxpr.outvars))
        writes = tuple(each for stage in covered for each in stage.writes if each in outside)
        inner = [self._function(each) for each in part.parts]

        def again(*given: Any) -> list[Any]:
            known = dict(zip(reads, given, strict=True))
            _run(inner, known)
            return [known[each] for each in writes]

        return jax.checkpoint(again), reads, writes


def _run(functions: Iterable[_Function], known: dict[Any, Any]) -> None:
    """Call functions in order, each on known variables, and add their results."""
    for function, reads, writes in functions:
        known.update(zip(writes, function(*(known[each] for each in reads)), strict=True))


def _best(listed: list[tuple[Option | Groups, Costs]]) -> list[tuple[Option | Groups, Costs]]:
    """Return the choices that no other one beats in time, in bytes kept and in bytes at the backward."""
    found: list[tuple[Option | Groups, Costs]] = []
    for choice, cost in sorted(listed, key=lambda each: (each[1].backward, each[1].saved, each[1].workspace)):
        whole = cost.saved + cost.workspace
        if not any(other.saved <= cost.saved and other.saved + other.workspace <= whole for _, other in found):
            found.append((choice, cost))
    step = -(-len(found) // MOST)
    return [*found[:-1:step], found[-1]]  # the last one needs the smallest memory


def tree_of(runs: Sequence[str]) -> tuple[Keep | Again, ...]:
    """Read the nested checkpoints of a memory-persistent schedule from its runs."""
    middle = runs.index("loss")
    before, after = [_read(each) for each in runs[:middle]], [_read(each) for each in runs[middle + 1 :]]
    return _Reader(after).tree(before)


def _read(task: str) -> tuple[str, int, int]:
    kind = task.rstrip("0123456789.")
    stage, _, choice = task[len(kind) :].partition(".")
    return kind, int(stage) - 1, int(choice or 1) - 1


class _Reader:
    """Reads runs from the loss on: backwards, and forwards again before them."""

    def __init__(self, runs: list[tuple[str, int, int]]) -> None:
        self.runs, self.place = runs, 0

    def tree(self, forwards: list[tuple[str, int, int]]) -> tuple[Keep | Again, ...]:
        """Return the parts that some forwards begin, reading all their backwards."""
        kept = {stage: choice for kind, stage, choice in forwards if kind == "Fe"}
        first, stage = forwards[0][1], forwards[-1][1]
        parts: list[Keep | Again] = []
        while stage >= first:
            if stage in kept:
                self.place += 1  # its backward
                parts.append(Keep(stage, kept[stage]))
                stage -= 1
                continue
            again = list(self._forwards())
            parts.append(Again(self.tree(again)))
            stage = again[0][1] - 1
        return tuple(parts[::-1])

    def _forwards(self) -> Iterator[tuple[str, int, int]]:
        while self.runs[self.place][0] != "B":
            yield self.runs[self.place]
            self.place += 1

"""A scan over layers: its policies by group of layers, and the scans that carry them out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from remat.bridges.jax.evaluation import inline, shape_of, value_of
from remat.bridges.jax.options import Option, Part, analyse, is_float
from remat.bridges.jax.policies import checkpointed
from remat.bridges.jax.primitives import scan_parts, size_of
from remat.bridges.jax.shim import jax
from remat.bridges.jax.stages import Stage, whole
from remat.generate.devices import Rates

SPLITS = 8
"""Numbers of layers tried for the second of two groups."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Policies of a scan: groups of consecutive layers in the order that they run, or equal blocks.

    Attributes
    ----------
    counts : tuple of int
        Layers of each group.
    options : tuple of Option
        One for each group.
    block : int
        Layers of a block of which only the input is kept; 0: no blocks.
    """

    counts: tuple[int, ...]
    options: tuple[Option, ...]
    block: int = 0


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of a stage under a choice: bytes and nanoseconds."""

    saved: int
    backward: int
    workspace: int


@dataclass(frozen=True)
class Layers:
    """A scan over layers.

    Attributes
    ----------
    stage : Stage
        Whose only equation is the scan.
    body : Stage
        The stage of one layer.
    part : Part
        Costs and options of one layer.
    """

    stage: Stage
    body: Stage
    part: Part
    constants: tuple[Any, ...]

    @classmethod
    def of(cls, stage: Stage, rates: Rates) -> Layers:
        """Analyse the body of a scan."""
        closed = inline(stage.scan.params["jaxpr"])
        body = whole(closed.jaxpr)
        avals = [shape_of(each.aval) for each in body.reads]
        first = len(closed.consts) + stage.scan.params["num_consts"]
        flowing = range(first, first + stage.scan.params["num_carry"])
        part = analyse(lambda *given: body.run(given), avals, rates, flowing=flowing, sliced=True)
        return cls(stage, body, part, tuple(closed.consts))

    @property
    def length(self) -> int:
        """Number of layers."""
        return int(self.stage.scan.params["length"])

    # --- costs --------------------------------------------------------------------------------------------------------

    def choices(self, slow: Callable[[Option], Option | None]) -> Iterator[tuple[Groups, Costs]]:
        """Yield policies by group, with their costs; `slow` returns an option with a host, or None."""
        eqn, part, length = self.stage.scan, self.part, self.length
        _, carried, rows = scan_parts(eqn, [each.aval for each in eqn.invars])
        carry = sum(size_of(each) for each in carried)
        given = sum(size_of(each) for each in rows)
        moving = sum(size_of(each) for each in rows if is_float(each))
        back = length * part.backward
        for option in part.options:
            saved = length * (carry + option.saved)
            yield Groups((length,), (option,)), Costs(saved, back + length * option.again, option.workspace)
            hosted = slow(option)
            if hosted is not None:
                costs = Costs(saved - length * option.saved, back + length * hosted.again, hosted.workspace)
                yield Groups((length,), (hosted,)), costs
            for block in (each for each in range(2, length) if length % each == 0):
                inner = block * (carry + option.saved) + option.workspace + (given + moving) * block // length
                again = length * (part.forward + option.again)
                yield Groups((length,), (option,), block), Costs(length // block * carry, back + again, inner)
        for dear, cheap in pairwise(part.options):
            for late in sorted({max(1, round(length * share / (SPLITS + 1))) for share in range(1, SPLITS + 1)}):
                if late < length:
                    early = length - late
                    saved = length * carry + early * cheap.saved + late * dear.saved + given
                    again = early * cheap.again + late * dear.again
                    work = max(dear.workspace, cheap.workspace) + moving
                    yield Groups((early, late), (cheap, dear)), Costs(saved, back + again, work)

    # --- execution ----------------------------------------------------------------------------------------------------

    def run(self, arguments: Sequence[Any], groups: Groups) -> list[Any]:
        """Run the scan with its policies, and return the outputs of the stage."""
        eqn = self.stage.scan
        known = dict(zip(self.stage.reads, arguments, strict=True))
        consts, carry, rows = scan_parts(eqn, [value_of(each, known) for each in eqn.invars])
        if groups.block:
            carry, stacked = self._blocks(consts, carry, rows, groups)
        else:
            carry, stacked = self._groups(consts, carry, rows, groups)
        outputs = dict(zip(eqn.outvars, [*carry, *stacked], strict=True))
        return [outputs[each] for each in self.stage.writes]

    def _scan(self, consts: Any, carry: Any, rows: Any, option: Option, length: int) -> tuple[list[Any], list[Any]]:
        eqn = self.stage.scan
        count = len(carry)
        body = checkpointed(lambda *given: self.body.run([*self.constants, *given], option.names), option, loop=True)

        def step(held: Any, row: Any) -> Any:
            found = body(*consts, *held, *row)
            return found[:count], found[count:]

        options = {"length": length, "reverse": eqn.params["reverse"], "unroll": eqn.params.get("unroll", 1)}
        found: tuple[list[Any], list[Any]] = jax.lax.scan(step, list(carry), list(rows), **options)
        return found

    def _groups(self, consts: Any, carry: Any, rows: Any, groups: Groups) -> tuple[list[Any], list[Any]]:
        if len(groups.counts) == 1:
            return self._scan(consts, carry, rows, groups.options[0], self.length)
        backwards = self.stage.scan.params["reverse"]
        stacked = []
        for (ran, end), option in zip(pairwise((0, *accumulate(groups.counts))), groups.options, strict=True):
            bounds = (self.length - end, self.length - ran) if backwards else (ran, end)
            part = [jax.lax.slice_in_dim(each, *bounds) for each in rows]
            carry, made = self._scan(consts, carry, part, option, end - ran)
            stacked.append(made)
        if backwards:
            stacked.reverse()
        return carry, [jax.numpy.concatenate(each) for each in zip(*stacked, strict=True)]

    def _blocks(self, consts: Any, carry: Any, rows: Any, groups: Groups) -> tuple[list[Any], list[Any]]:
        block, option = groups.block, groups.options[0]
        outer = self.length // block
        folded = [each.reshape(outer, block, *each.shape[1:]) for each in rows]

        def inner(consts: Any, held: Any, row: Any) -> Any:
            return self._scan(consts, held, row, option, block)

        again = jax.checkpoint(inner, prevent_cse=False)
        carry, stacked = jax.lax.scan(
            lambda held, row: again(consts, held, row),
            list(carry),
            folded,
            length=outer,
            reverse=self.stage.scan.params["reverse"],
        )
        return carry, [each.reshape(self.length, *each.shape[2:]) for each in stacked]

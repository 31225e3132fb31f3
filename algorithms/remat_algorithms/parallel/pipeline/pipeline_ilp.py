"""`pipeline-ilp`: which layers each device holds and when it runs them, as one program (after Beaumont et al. 2021).

The class: patterns in which each layer, or block of layers, is on any one device and is run there as one operation
forwards and one backwards, both halves together. A device may hold layers anywhere (`contiguous`: only ones that
follow each other). Periods are bisected, a constraint program each (see `period_program`), between what no period is
less than, and the one of `madpipe`.

The paper's integer program has binaries for the places of layers and the order of each pair, with big-M terms; here
CP-SAT has intervals modulo the period, and links are as the instance has them. A program that comes to no end within
its work counts as one without a solution, but proves nothing. Programs between the period found and what is refuted
then raise the bound of the note.
"""

from __future__ import annotations

from pydantic import Field

from remat.plugin import Context, Options, Pattern, Problem, Proposal, Termination
from remat_algorithms.parallel.pipeline.layer_blocks import Blocks, blocks_of
from remat_algorithms.parallel.pipeline.madpipe import MadPipeOptions
from remat_algorithms.parallel.pipeline.madpipe import solve as madpipe
from remat_algorithms.parallel.pipeline.period_program import Asked
from remat_algorithms.parallel.pipeline.period_search import (
    able,
    least_period,
    refute,
    steps_below,
    steps_from,
    unit_of,
)
from remat_algorithms.parallel.pipeline.periodic_pipelines import stream_of


class IlpOptions(Options):
    """Options of `pipeline-ilp`."""

    contiguous: bool = Field(default=False, description="the layers of a device follow each other")
    blocks: int = Field(default=12, ge=1, le=200, description="layers are merged into so many blocks, at most")
    work: float = Field(
        default=1.0, gt=0, le=1e6, description="limit of each program in CP-SAT's units, for answers without a clock"
    )


def solve(problem: Problem, options: IlpOptions, context: Context) -> Proposal:
    """Find the least period, and prove it where the programs come to an end.

    Raises
    ------
    OptionError
        For parameters that do not change meanwhile, or links that wait for others.
    """
    instance = stream_of(problem, "pipeline-ilp", ("stash", "double", "single"))
    blocks = blocks_of(problem, instance, options.blocks)
    started = madpipe(problem, MadPipeOptions(special=not options.contiguous), context).pattern
    best = started if isinstance(started, Pattern) else None
    unit = unit_of(blocks)
    low = steps_from(blocks.least_period or 1, unit)
    high = steps_from(blocks.time_of_one, unit) if best is None else steps_below(best.period, unit)
    asked = Asked(blocks, able(blocks), unit, options.contiguous, work=options.work, seed=context.seed)
    found = least_period(asked, low, high, lambda: context.stopped)
    best = found.pattern or best
    refuted = found.refuted
    if best is not None and is_provable(blocks):
        refuted = refute(asked, refuted, steps_from(best.period, unit), lambda: context.stopped)
    return Proposal(
        pattern=best,
        notes=() if best is None else (_about(blocks, best, refuted, contiguous=options.contiguous),),
        termination=context.termination if context.stopped else Termination.COMPLETED,
    )


def is_provable(blocks: Blocks) -> bool:
    """Whether a program without a solution is a proof: times are as they are, and blocks single layers."""
    return blocks.whole and len(blocks.parts) == blocks.instance.length


def _about(blocks: Blocks, best: Pattern, refuted: int, *, contiguous: bool) -> str:
    """Say how near the period is to the least one."""
    parts = "layers" if len(blocks.parts) == blocks.instance.length else f"{len(blocks.parts)} blocks of layers"
    held = f"{parts} that follow each other on each device" if contiguous else f"{parts} on any device"
    if not is_provable(blocks):
        return f"with {held}, no {'whole ' if blocks.whole else ''}period is below {blocks.least_period}"
    least = refuted + 1
    if best.period == least:
        return f"no whole period is less with {held} and whole backwards: proved"
    return f"with {held} and whole backwards, no whole period is below {least}"

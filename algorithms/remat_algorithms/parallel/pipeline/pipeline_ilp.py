"""`pipeline-ilp`: one program for the layers of each device and their times (after Beaumont et al. 2021).

The class contains patterns in which each layer, or block of layers, is on any one device. It runs there as one forward
and one backward operation, the latter with both halves together. A device may hold arbitrary layers, or with
`contiguous` only consecutive ones. Periods are bisected between a lower bound and the period of `madpipe`, with one
constraint program each (see `period_program`).

The paper's integer program has binaries for the positions of layers and the order of each pair, with big-M terms. Here
CP-SAT has intervals modulo the period, and links follow the instance. A program that does not finish within its work
counts as one without a solution, but proves nothing. Further programs between the refuted periods and the period found
then raise the bound of the note.
"""

from __future__ import annotations

from pydantic import Field

from remat.plugin import Context, Number, Options, Pattern, Problem, Proposal, Termination
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
from remat_algorithms.parallel.pipeline.periodic_pipelines import CHANGING, stream_of


class IlpOptions(Options):
    """Options of `pipeline-ilp`."""

    contiguous: bool = Field(default=False, description="assign only consecutive layers to each device")
    blocks: int = Field(
        default=12,
        ge=1,
        le=200,
        description="maximum number of blocks into which layers are merged; more are more exact and slower",
    )
    work: float = Field(
        default=1.0, gt=0, le=1e6, description="work limit of each program, in CP-SAT's deterministic units"
    )


def solve(problem: Problem, options: IlpOptions, context: Context) -> Proposal:
    """Find the smallest period, and prove it if the programs finish.

    Raises
    ------
    OptionError
        If parameters do not change during the stream, or links wait for others.
    """
    instance = stream_of(problem, "pipeline-ilp", CHANGING)
    blocks = blocks_of(problem, instance, options.blocks)
    work = min(options.work, MadPipeOptions().work)
    started = madpipe(problem, MadPipeOptions(special=not options.contiguous, work=work), context).pattern
    best = started if isinstance(started, Pattern) else None
    unit = unit_of(blocks)
    low = steps_from(blocks.least_period or 1, unit)
    high = steps_from(blocks.time_of_one, unit) if best is None else steps_below(best.period, unit)
    asked = Asked(blocks, able(blocks), unit, options.contiguous, work=options.work, seed=context.seed)
    found = least_period(asked, low, high, lambda: context.stopped)
    best = found.pattern or best
    refuted = found.refuted
    if best is not None and is_provable(blocks, unit):
        refuted = refute(asked, refuted, steps_from(best.period, unit), lambda: context.stopped)
    return Proposal(
        pattern=best,
        notes=() if best is None else (_about(blocks, best, refuted, contiguous=options.contiguous),),
        termination=context.termination if context.stopped else Termination.COMPLETED,
    )


def is_provable(blocks: Blocks, unit: Number) -> bool:
    """Whether infeasibility of the program is a proof: times are exact, and blocks are single layers."""
    return blocks.whole and unit == 1 and len(blocks.parts) == blocks.instance.length


def _about(blocks: Blocks, best: Pattern, refuted: int, *, contiguous: bool) -> str:
    """Describe the gap between the period and the smallest one."""
    parts = "layers" if len(blocks.parts) == blocks.instance.length else f"{len(blocks.parts)} blocks of layers"
    held = f"{parts} that follow each other on each device" if contiguous else f"{parts} on any device"
    if not is_provable(blocks, unit_of(blocks)):
        return f"with {held}, no {'whole ' if blocks.whole else ''}period is below {blocks.least_period}"
    least = refuted + 1
    if best.period == least:
        return f"no whole period is less with {held} and whole backwards: proved"
    return f"with {held} and whole backwards, no whole period is below {least}"

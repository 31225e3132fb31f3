"""`optpipe`: one program over operations, offload decisions, and copies to and from the host (after Li et al. 2025).

Every operation is an interval. Each offloaded micro-batch of a stage adds two optional intervals, the copies out and
back. A channel carries one copy at a time. Bytes are a cumulative resource per device. An offloadable value is held
from the start of its forward to the end of its backward. If it is offloaded, it is held until it has been sent, and
again from the start of its return.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Literal

from pydantic import Field

from remat.plugin import Context, Options, Problem, Proposal, Termination
from remat_algorithms.kit.integral_bounds import common_step
from remat_algorithms.kit.programs.cp_sat import CpSatJob
from remat_algorithms.kit.programs.solver_status import watched
from remat_algorithms.parallel.pipeline.model import B, F, Op, W, flow, needed
from remat_algorithms.parallel.pipeline.offload.incumbent import BestSteps
from remat_algorithms.parallel.pipeline.offload.offload_model import Hosting, R, check_host
from remat_algorithms.parallel.pipeline.offload.selective_offload import offload_selectively
from remat_algorithms.parallel.pipeline.order_search import report_named
from remat_algorithms.parallel.pipeline.stages import staging

STEPS = 2**20
"""Time steps of the horizon if times have no common step, or too small a one; times are then rounded up."""

MOST_OPERATIONS = 4_000
"""Maximum number of operations of a program."""

MOST_BYTES = 2**24
"""Maximum number of bytes for exact sizes; above it, the bytes held are rounded up."""


class OptPipeOptions(Options):
    """Options of `optpipe`."""

    placement: Literal["chain", "v", "interleaved"] = Field(
        default="chain",
        description="stages per device: one (chain), two in a V (v), or several round-robin (interleaved)",
    )
    chunks: int = Field(default=2, ge=2, le=64, description="number of stages per device if they are interleaved")
    work: float = Field(
        default=20, gt=0, le=1e6, description="work limit of the program, in CP-SAT's deterministic units"
    )


def solve(problem: Problem, options: OptPipeOptions, context: Context) -> Proposal:
    """Schedule operations and copies of one placement together.

    Notes
    -----
    The search starts from selective offloading of the named schedules. The program uses the bytes of whole stages, and
    its transfers between devices never wait for each other. Each solution is simulated and accepted if it fits. Above
    `MOST_OPERATIONS` operations, the program is skipped. Exponential; its limit counts work.
    """
    check_host(problem)
    report_named(problem, context)
    staged = staging(problem, options.placement, options.chunks)
    best = BestSteps(problem, context)
    offload_selectively(best, staged)
    hosting = Hosting(problem, staged)
    ended = Termination.COMPLETED
    model = hosting.model
    if not model.feasible or best.steps is None or best.makespan is None:
        program = None
    elif len(model.operations()) > MOST_OPERATIONS:
        program, ended = None, Termination.SIZE_LIMIT
    else:
        program = _Program(hosting, best.makespan)
    if program is not None and not context.stopped:
        job = CpSatJob(
            program.model,
            threads=context.threads or 1,
            seed=context.seed,
            seconds=None,
            chosen=program.chosen,
            found=lambda sequence: best.consider(hosting, sequence),
        )
        job.solver.parameters.max_deterministic_time = options.work
        watched(job, lambda: context.stopped, None)
    return Proposal(
        steps=best.steps,
        makespan=best.makespan if best.steps is not None else None,
        termination=context.termination if context.stopped else ended,
    )


class _Program:
    """Constraint program for a makespan below a given one."""

    def __init__(self, hosting: Hosting, makespan: float) -> None:
        from ortools.sat.python import cp_model

        self.hosting, self.pipeline = hosting, hosting.model
        self.model: Any = cp_model.CpModel()
        rows = (*self.pipeline.times[:3], *hosting.way, self.pipeline.delays)
        step = common_step(time for row in rows for time in row)
        self.unit: float | Fraction = (step if makespan <= STEPS * step else makespan / STEPS) or 1
        self.horizon = math.ceil(makespan / self.unit)
        self.ops = self.pipeline.operations()
        self.time = {op: self._steps(self.pipeline.times[op[0]][op[1]]) for op in self.ops}
        self.start = {op: self.model.new_int_var(0, self.horizon, "") for op in self.ops}
        self.sent: dict[tuple[int, int], Any] = {}
        self.copies: dict[tuple[int, int], tuple[Any, Any]] = {}
        self.held: list[list[tuple[Any, int]]] = [[] for _ in self.pipeline.fixed]
        self.figure = self.model.new_int_var(0, self.horizon - 1, "")
        self._precede()
        for stage, batch in sorted({op[1:] for op in self.ops}):
            self._hold(stage, batch)
        for device, own in enumerate(self.pipeline.on):
            if own:
                self._run_on(device, own)
        self.model.minimize(self.figure)

    def _steps(self, time: float) -> int:
        # Times above the horizon are clipped to just above it, because CP-SAT uses 64-bit integers.
        return math.ceil(min(time / self.unit, self.horizon + 1) - 1e-9)

    def _end(self, op: Op) -> Any:
        return self.start[op] + self.time[op]

    def _precede(self) -> None:
        for op in self.ops:
            for source, delay in needed(self.pipeline, op):
                self.model.add(self.start[op] >= self._end(source) + self._steps(delay))
            if op[2]:
                self.model.add(self.start[op] >= self._end((op[0], op[1], op[2] - 1)))
            self.model.add(self.figure >= self._end(op))

    def _hold(self, stage: int, batch: int) -> None:
        pipeline, program = self.pipeline, self.model
        held = self.held[pipeline.place[stage]]
        away, activation, kept = self.hosting.away[stage], pipeline.activation[stage], pipeline.kept[stage]
        forward, backward = (F, stage, batch), (B, stage, batch)
        begin, end = self.start[forward], self._end(backward)
        held.append((self._interval(begin, end), activation - away))
        if away:
            sent = self.sent[stage, batch] = program.new_bool_var("")
            out, back = (self._steps(way[stage]) for way in self.hosting.way)
            goes, comes = program.new_int_var(0, self.horizon, ""), program.new_int_var(0, self.horizon, "")
            self.copies[stage, batch] = goes, comes
            program.add(goes >= self._end(forward)).only_enforce_if(sent)
            program.add(comes >= goes + out).only_enforce_if(sent)
            program.add(self.start[backward] >= comes + back).only_enforce_if(sent)
            held.append((self._interval(begin, end, sent.negated()), away))
            held.append((self._interval(begin, goes + out, sent), away))
            held.append((self._interval(comes, end, sent), away))
        if kept:
            held.append((self._interval(end, self._end((W, stage, batch))), kept))
            held.append((self._interval(self.start[backward], end), max(0, kept - activation)))

    def _interval(self, begin: Any, end: Any, given: Any = None) -> Any:
        length = self.model.new_int_var(0, self.horizon, "")
        if given is None:
            return self.model.new_interval_var(begin, length, end, "")
        return self.model.new_optional_interval_var(begin, length, end, given, "")

    def _run_on(self, device: int, own: tuple[int, ...]) -> None:
        program = self.model
        ops = [op for op in self.ops if op[1] in own]
        program.add_no_overlap([program.new_fixed_size_interval_var(self.start[op], self.time[op], "") for op in ops])
        for number, way in enumerate(self.hosting.way):
            program.add_no_overlap(
                [
                    program.new_optional_fixed_size_interval_var(ends[number], self._steps(way[stage]), sent, "")
                    for (stage, batch), sent in self.sent.items()
                    if stage in own
                    for ends in (self.copies[stage, batch],)
                ]
            )
        free = self.pipeline.free[device]
        held = [(interval, size) for interval, size in self.held[device] if size]
        if free is None or not held:
            return
        unit = math.gcd(*(size for _, size in held))
        if free // unit > MOST_BYTES:
            unit = -(-free // MOST_BYTES)
        program.add_cumulative([one for one, _ in held], [-(-size // unit) for _, size in held], free // unit)

    def chosen(self, value: Callable[[Any], int]) -> tuple[Op, ...]:
        """Return the sequence of a solution."""
        found = [(value(start), value(start) + self.time[op], op) for op, start in self.start.items()]
        for (stage, batch), sent in self.sent.items():
            if value(sent):
                begin = value(self.copies[stage, batch][1])
                found.append((begin, begin + self._steps(self.hosting.way[1][stage]), (R, stage, batch)))
        # At equal starts, shorter operations come first, and zero-length ones follow the flow of their data.
        found.sort(key=lambda entry: (entry[0], entry[1], _flow(entry[2])))
        return tuple(op for _, _, op in found)


def _flow(op: Op) -> tuple[int, ...]:
    """Return the key of `flow`; a transfer back precedes its backward."""
    phase, stage, batch = op
    return (*flow((B, stage, batch)), 0) if phase == R else (*flow(op), 1)

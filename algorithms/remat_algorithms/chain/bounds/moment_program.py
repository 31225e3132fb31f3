"""Integer program over some moments of a chain: values in memory at each, and recomputation between them.

The moments p_1 > .. > p_J divide a schedule into blocks. Block 0 ends when B_{p_1} starts, block j when B_{p_(j+1)}
starts, and the last block at the end. X_jk states that stage k runs in block j, and E_jk that this run produces s_k.
A_jk and C_jk state that x_k and s_k are in memory while B_{p_(j+1)} runs:

    X_jk, A_jk <= A_(j-1)k + X_j(k-1),   C_jk <= C_(j-1)k + E_jk,   E_jk <= X_jk,
    the values that the backwards of block j read are available in block j,
    bytes at each moment <= the bytes that its backward leaves.

The minimum total forward time of X and E, minus one run of each stage, is a lower bound, because every schedule
satisfies these constraints. In block 0 every stage runs. With all moments, a solution is a schedule except for the
memory needs of its forwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from remat.plugin import BoolArray
from remat_algorithms.chain.bounds.moment_facts import Moments
from remat_algorithms.kit.programs.program import FloatArray, ProgramBuilder

Columns = dict[tuple[int, int], int]
"""Columns by block or moment, and stage."""


@dataclass
class MomentProgram:
    """The program of some moments.

    Attributes
    ----------
    moments : Moments
    chosen : tuple of int
        p_1 > .. > p_J.
    program : ProgramBuilder
        Minimises ticks, without the time of one run of each stage.
    runs, saving : dict
        X and E. For block 0, only E, where it has a cost. E equals X if the run produces s_k at no cost.
    inputs, saved : dict
        A and C.
    """

    moments: Moments
    chosen: tuple[int, ...]
    program: ProgramBuilder = field(default_factory=ProgramBuilder)
    runs: Columns = field(default_factory=dict)
    saving: Columns = field(default_factory=dict)
    inputs: Columns = field(default_factory=dict)
    saved: Columns = field(default_factory=dict)

    @staticmethod
    def of(moments: Moments, chosen: tuple[int, ...], most: int) -> MomentProgram:
        """Build the program (O(J L^2) coefficients at most, usually O(J L)).

        Parameters
        ----------
        moments : Moments
        chosen : tuple of int
            Descending, without repetition.
        most : int
            Ticks of a known schedule, an upper limit for solutions.
        """
        built = MomentProgram(moments, chosen)
        for j in range(len(chosen) + 1):
            built._columns(j)
        for j in range(len(chosen) + 1):
            built._block(j)
        for j in range(len(chosen)):
            built._moment(j)
        program = built.program
        costs = [(column, -cost) for column, cost in enumerate(program.cost) if cost]
        program.add_row(costs, lower=-(most + built._saved_once))
        return built

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """First and last backward of each block: B_p_j is the last one of its block."""
        ends = [self.moments.length + 1, *self.chosen, 0]
        return [(first - 1, last) for first, last in pairwise(ends)]

    def excess(self, cost: float) -> int:
        """Convert a cost of the program to ticks of recomputation."""
        return round(cost) - self._saved_once

    @property
    def _saved_once(self) -> int:
        """Cost of one saving run of each stage, which is part of the time without recomputation."""
        return int(self.moments.saving[: self.chosen[0]].sum())

    def _columns(self, j: int) -> None:
        moments, program = self.moments, self.program
        first, _ = self.blocks[j]
        for k in range(min(first + 1, moments.length)):
            if j:
                self.runs[j, k] = program.add_column(cost=int(moments.forward[k]), integer=True)
            if moments.reads_saved[k]:
                extra = int(moments.saving[k])
                if extra and (j or k < self.chosen[0]):  # block 0 has produced the values that its backwards read
                    self.saving[j, k] = program.add_column(cost=extra, integer=True)
                elif j:
                    self.saving[j, k] = self.runs[j, k]
        if j < len(self.chosen):
            p = self.chosen[j]
            for k in range(p):
                self.inputs[j, k] = program.add_column(integer=True)
                if moments.reads_saved[k]:
                    self.saved[j, k] = program.add_column(integer=True)
            if p and moments.reads_output[p - 1]:
                self.inputs[j, p] = program.add_column(integer=True)

    def _at_hand(self, j: int, k: int) -> list[tuple[int, float]]:
        """Return the columns that make x_k available in a block (not the first one)."""
        ways = (self.inputs.get((j - 1, k)), self.runs.get((j, k - 1)))
        return [(column, 1) for column in ways if column is not None]

    def _block(self, j: int) -> None:
        """Add the rows of a block's runs, kept values and backward reads; for block 0, only of kept values."""
        moments, add = self.moments, self.program.add_row
        first, last = self.blocks[j]
        if j < len(self.chosen):
            for k in range(self.chosen[j]):
                if (j, k) in self.saved and (j, k) in self.saving:
                    kept = [(self.saved[j, k], -1.0), (self.saving[j, k], 1.0)]
                    add(kept + ([(self.saved[j - 1, k], 1.0)] if j else []), lower=0)
        if not j:
            return
        for k in range(min(first + 1, moments.length)):
            run = self.runs[j, k]
            add([(run, -1), *self._at_hand(j, k)], lower=0)
            if self.saving.get((j, k), run) != run:
                add([(run, 1), (self.saving[j, k], -1)], lower=0)
        for k in range(moments.length + 1):
            if (j, k) in self.inputs:
                add([(self.inputs[j, k], -1), *self._at_hand(j, k)], lower=0)
        for p in range(last, first + 1):
            if moments.reads_input[p]:
                add(self._at_hand(j, p), lower=1)
            if moments.reads_output[p]:
                add(self._at_hand(j, p + 1), lower=1)
            if moments.reads_saved[p]:
                add([(self.saved[j - 1, p], 1), (self.saving[j, p], 1)], lower=1)

    def _moment(self, j: int) -> None:
        """Add the row of a moment's bytes."""
        moments, p = self.moments, self.chosen[j]
        held = [(self.inputs[j, k], -int(moments.activation[k])) for k in range(p + 1) if (j, k) in self.inputs]
        if moments.reads_input[p]:
            held = [(column, size) for column, size in held if column != self.inputs.get((j, p))]
        held += [(self.saved[j, k], -int(moments.saved[k])) for k in range(p) if (j, k) in self.saved]
        self.program.add_row(held, lower=-int(moments.room[p]))

    def matrix(self, solution: FloatArray) -> BoolArray:
        """Convert a solution to a bit matrix (`chain.phase_matrix`), with each run as late as its block allows.

        Its peak may exceed the budget, because the program ignores memory between the moments and during forwards.
        """
        moments, length = self.moments, self.moments.length
        one = (np.rint(solution) > 0).tolist()
        runs = np.zeros((length + 1, length), dtype=np.bool_)
        runs[length] = True
        for j, (first, last) in enumerate(self.blocks[1:], start=1):
            phase: dict[int, int] = {}

            def kept(columns: Columns, j: int, k: int) -> bool:
                return (j, k) in columns and one[columns[j, k]]

            for k in range(min(first, length - 1), -1, -1):
                if not one[self.runs[j, k]]:
                    continue
                wanted = []
                if not kept(self.inputs, j - 1, k + 1):
                    if k + 1 in phase:
                        wanted.append(phase[k + 1])
                    if last <= k + 1 <= first and moments.reads_input[k + 1]:
                        wanted.append(k + 1)
                    if last <= k <= first and moments.reads_output[k]:
                        wanted.append(k)
                    if kept(self.inputs, j, k + 1):
                        wanted.append(last)
                if moments.reads_saved[k] and not kept(self.saved, j - 1, k):
                    if last <= k <= first:
                        wanted.append(k)
                    elif kept(self.saved, j, k):
                        wanted.append(last)
                if wanted:
                    phase[k] = max(wanted)
            for k, p in phase.items():
                runs[p, k] = True
        return runs

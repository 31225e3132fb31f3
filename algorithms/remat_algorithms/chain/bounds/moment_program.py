"""An integer program over some moments of a chain: what lies in memory at each, and what runs again between them.

The moments p_1 > .. > p_J cut a schedule into blocks: block 0 ends as B_{p_1} begins, block j as B_{p_(j+1)} begins,
the last one at the end. X_jk says that stage k runs in block j, E_jk that such a run makes s_k, A_jk and C_jk that x_k
and s_k lie in memory while B_{p_(j+1)} runs:

    X_jk, A_jk <= A_(j-1)k + X_j(k-1),   C_jk <= C_(j-1)k + E_jk,   E_jk <= X_jk,
    what the backwards of block j read is at hand in block j,
    bytes at each moment <= what its backward leaves,

and the least sum of forward times of X and E, less what one run of each stage takes, is a lower bound: a schedule
fulfils all this. In block 0 every stage runs. With all moments it is a schedule but for what its forwards need.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from remat.plugin import BoolArray
from remat_algorithms.chain.bounds.moment_facts import Moments
from remat_algorithms.kit.programs.program import FloatArray, ProgramBuilder

Columns = dict[tuple[int, int], int]
"""By block, or moment, and stage."""


@dataclass
class MomentProgram:
    """The program of some moments.

    Attributes
    ----------
    moments : Moments
    chosen : tuple of int
        p_1 > .. > p_J.
    program : ProgramBuilder
        Minimises ticks; the time of one run of each stage is left out.
    runs, saving : dict
        X and E; of block 0, E alone, where it costs something. E is X where that makes s_k for nothing.
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
        """Build the program (O(J L^2) coefficients at most, O(J L) most often).

        Parameters
        ----------
        moments : Moments
        chosen : tuple of int
            Descending, without repetition.
        most : int
            Ticks of a schedule that is known: with more than that nothing is looked for.
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
        """Return a cost of the program as ticks of recomputation."""
        return round(cost) - self._saved_once

    @property
    def _saved_once(self) -> int:
        """What one saving run of each stage costs: that is part of the time without recomputation."""
        return int(self.moments.saving[: self.chosen[0]].sum())

    def _columns(self, j: int) -> None:
        moments, program = self.moments, self.program
        first, _ = self.blocks[j]
        for k in range(min(first + 1, moments.length)):
            if j:
                self.runs[j, k] = program.add_column(cost=int(moments.forward[k]), integer=True)
            if moments.reads_saved[k]:
                extra = int(moments.saving[k])
                if extra and (j or k < self.chosen[0]):  # block 0 has made what its own backwards read
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
        """Return the ways to have x_k in a block (not the first one)."""
        ways = (self.inputs.get((j - 1, k)), self.runs.get((j, k - 1)))
        return [(column, 1) for column in ways if column is not None]

    def _block(self, j: int) -> None:
        """Add the rows of what runs, what is kept at its end and what its backwards read; of block 0, what is saved."""
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
        """Return a solution as a bit matrix (`chain.phase_matrix`), with each run as late as its block allows.

        Its peak is what it is: between the moments, and while forwards run, nothing has been asked of it.
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

"""`Chain`: a chain or an adjoint as arrays, for algorithms that work on chains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat.graph.taskgraph import BoolArray, IntArray, NumberArray
from remat.units import Number


@dataclass(frozen=True, kw_only=True)
class Variants:
    """The alternatives of all stages in one list: those of stage i are ``start[i] .. start[i+1] - 1``.

    Attributes
    ----------
    start : (L+1,) int64
    saving_forward_time, backward_time : (N,) int64 or float64
    saved_size, saving_workspace, backward_workspace : (N,) int64
    reads_input, reads_output, reads_saved : (N,) bool
        As in `Chain`, for each alternative.
    """

    start: IntArray
    saving_forward_time: NumberArray
    backward_time: NumberArray
    saved_size: IntArray
    saving_workspace: IntArray
    backward_workspace: IntArray
    reads_input: BoolArray
    reads_output: BoolArray
    reads_saved: BoolArray

    @property
    def stage(self) -> IntArray:
        """Stage of each alternative."""
        return np.repeat(np.arange(len(self.start) - 1, dtype=np.int64), np.diff(self.start))


@dataclass(frozen=True, kw_only=True)
class Chain:
    """L stages and a loss; stage i (0-based) maps x_i to x_{i+1}.

    Attributes
    ----------
    forward_time, saving_forward_time, backward_time : (L,) int64 or float64
        All three share one type. Sums of integer times stay exact.
    activation_size : (L+1,) int64
        x_0 .. x_L.
    saved_size : (L,) int64
        Bytes that a saving forward keeps for the backward, in addition to the stage's input and output.
    gradient_size : (L+1,) int64
        y_0 .. y_L.
    forward_workspace, saving_workspace, backward_workspace : (L,) int64
    reads_input, reads_output, reads_saved : (L,) bool
        Which values each backward reads in addition to its gradient.
    saves : bool
        Whether saving forwards (Fe) and saved values exist; classical adjoints have none.
    in_place : bool
        Whether a task's outputs may reuse the bytes of the inputs that it drops.
    loss_time, loss_workspace, static_memory
    variants : Variants or None
        The alternatives of all stages, if any stage has several; the arrays above are those of the first alternative.
    """

    forward_time: NumberArray
    saving_forward_time: NumberArray
    backward_time: NumberArray
    activation_size: IntArray
    saved_size: IntArray
    gradient_size: IntArray
    forward_workspace: IntArray
    saving_workspace: IntArray
    backward_workspace: IntArray
    reads_input: BoolArray
    reads_output: BoolArray
    reads_saved: BoolArray
    saves: bool = True
    in_place: bool = False
    loss_time: Number = 0
    loss_workspace: int = 0
    static_memory: int = 0
    variants: Variants | None = None

    @property
    def length(self) -> int:
        """Number of stages L."""
        return len(self.forward_time)

    @property
    def alternatives(self) -> Variants:
        """The alternatives of all stages; a stage without listed alternatives has one."""
        if self.variants is not None:
            return self.variants
        return Variants(
            start=np.arange(self.length + 1, dtype=np.int64),
            saving_forward_time=self.saving_forward_time,
            backward_time=self.backward_time,
            saved_size=self.saved_size,
            saving_workspace=self.saving_workspace,
            backward_workspace=self.backward_workspace,
            reads_input=self.reads_input,
            reads_output=self.reads_output,
            reads_saved=self.reads_saved,
        )

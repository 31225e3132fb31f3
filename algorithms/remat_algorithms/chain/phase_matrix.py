"""Schedules of a chain as a bit matrix: the forwards that run in each phase.

Phase p ends with the backward p; phase L ends with the loss and comes first. ``runs[p, k]`` states that the forward of
stage k runs in phase p. Within a phase, forwards run in the order of the stages, and phase L runs all of them. A
stage's last forward is the saving one if its backward reads the saved values. Every value is read from its latest copy,
and freed after its last use. Every matrix is therefore a schedule; only its peak may be too high.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remat.plugin import BoolArray, Chain, IntArray


@dataclass(frozen=True)
class Phases:
    """A chain in the form of the kernels.

    Attributes
    ----------
    length : int
    sizes : (3, L+1) int64
        x_k; y_k; s_k (0 for k = L).
    workspace : (3, L+1) int64
        Workspaces of the forward, the saving forward and the backward of stage k (the loss, for k = L).
    reads : (3, L+1) bool
        Whether the backward of stage k reads x_k, x_{k+1}, s_k. The loss reads x_L.
    time : (L,) float64
        Time of a forward that is not a stage's last one.
    in_place : bool
    """

    length: int
    sizes: IntArray
    workspace: IntArray
    reads: BoolArray
    time: NDArray[np.float64]
    in_place: bool
    saves: bool

    @staticmethod
    def of(chain: Chain) -> Phases:
        """Convert a chain (O(L))."""
        forward, saving = chain.forward_workspace, chain.saving_workspace
        no = [False]
        return Phases(
            length=chain.length,
            sizes=np.stack((chain.activation_size, chain.gradient_size, np.append(chain.saved_size, 0))),
            workspace=np.stack(
                (
                    np.append(forward, 0),
                    np.append(saving, 0),
                    np.append(chain.backward_workspace, chain.loss_workspace),
                )
            ),
            reads=np.stack(
                (
                    np.append(chain.reads_input, [True]),
                    np.append(chain.reads_output, no),
                    np.append(chain.reads_saved & chain.saves, no),
                )
            ),
            time=chain.forward_time.astype(np.float64),
            in_place=chain.in_place,
            saves=chain.saves,
        )

    def matrix(self, tasks: list[int]) -> BoolArray | None:
        """Return the matrix of a schedule given as runs; None if it is not of this form.

        If the last forward of a stage is not the saving one, it is treated as if it were.
        """
        length, loss = self.length, self.loss
        runs = np.zeros((length + 1, length), dtype=np.bool_)
        phase, before = length, -1
        for task in tasks:
            if task >= loss:
                phase, before = phase - 1, -1
                continue
            stage = task % length
            if stage <= before or stage > phase:
                return None
            runs[phase, stage] = True
            before = stage
        return runs if runs[length].all() else None

    def tasks(self, runs: BoolArray) -> list[int]:
        """Return the runs of a matrix, as tasks of the task graph."""
        length, loss = self.length, self.loss
        # Phase numbers decrease over time.
        last = np.where(self.reads[2, :length], np.argmax(runs, axis=0), -1)
        tasks: list[int] = []
        for phase in range(length, -1, -1):
            stages = np.flatnonzero(runs[phase]).tolist()
            tasks += [length + stage if last[stage] == phase else stage for stage in stages]
            tasks.append(loss if phase == length else loss + 1 + phase)
        return tasks

    @property
    def loss(self) -> int:
        """Task of the loss; forwards have smaller indices, backwards larger ones."""
        return self.length * (2 if self.saves else 1)

    def peak(self, tasks: list[int]) -> int:
        """Return the bytes that runs need, without static memory, if every value is freed after its last use."""
        return max(self.during(tasks), default=0)

    def during(self, tasks: list[int]) -> list[int]:
        """Return the bytes held during each run, as `peak` counts them.

        The schedule is traversed from its end, with the values that later runs read (the plain twin of
        `phase_matrix_kernel.peak`, for any order of forwards). O(runs).
        """
        length, loss = self.length, self.loss
        x, y, s = self.sizes.tolist()
        forward, saving, backward = self.workspace.tolist()
        x_live, s_live = [False] * (length + 1), [False] * length
        live, gradient = 0, 0
        during: list[int] = []
        for task in reversed(tasks):
            freed = 0
            if task >= loss:
                stage = length if task == loss else task - loss - 1
                live -= gradient
                gradient = freed = y[stage + 1] if stage < length else 0
                live += gradient
                written, workspace = y[stage], backward[stage]
                reads_x = [stage + k for k in range(2) if self.reads[k, stage]]
                if self.reads[2, stage]:
                    s_live[stage] = True
                    live += s[stage]
                    freed += s[stage]
            else:
                stage = task % length
                reads_x = [stage]
                written, workspace = x[stage + 1], forward[stage]
                if x_live[stage + 1]:
                    x_live[stage + 1] = False
                    live -= x[stage + 1]
                if task >= length:
                    written, workspace = written + s[stage], saving[stage]
                    if s_live[stage]:
                        s_live[stage] = False
                        live -= s[stage]
            for k in reads_x:
                if not x_live[k]:
                    x_live[k] = True
                    live += x[k]
                    freed += x[k]
            if self.in_place:
                written = max(0, written - freed)
            during.append(live + written + workspace)
        return during[::-1]

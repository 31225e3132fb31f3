"""Forward and backward of a task graph, and the retention matrices of strategies that checkpoint the forward."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from remat.plugin import BoolArray, Problem
from remat_algorithms.dag.literature.retention import MOST_STAGES, Stages, stages_of

BACKWARD = "backward"


@dataclass(frozen=True)
class Training:
    """Stages whose first part is the forward pass.

    Attributes
    ----------
    stages : Stages
    forward : int
        The stages below it are the forward, the others the backward.
    lean : bool
        Whether a checkpoint keeps only the first of a task's outputs (chains: the activation, without the saved
        tensors); otherwise it keeps all outputs that any task reads.
    """

    stages: Stages
    forward: int
    lean: bool

    @cached_property
    def backward_uses(self) -> list[list[int]]:
        """For each value the backward stages that read it (and the end, for outputs), if the forward makes it."""
        stages = self.stages
        found = []
        for value, maker in enumerate(stages.maker):
            made = 0 <= maker < self.forward
            found.append([stage for stage in stages.readers[value] if stage >= self.forward] if made else [])
        for value in stages.ends:
            if stages.maker[value] < self.forward:
                found[value].append(len(stages))
        return found

    @cached_property
    def forward_uses(self) -> list[list[int]]:
        """For each value the forward stages that read it."""
        return [[stage for stage in readers if stage < self.forward] for readers in self.stages.readers]

    @cached_property
    def before(self) -> list[list[int]]:
        """For each forward stage the forward stages whose values it reads."""
        return self.stages.before[: self.forward]

    @cached_property
    def after(self) -> list[list[int]]:
        """For each forward stage the forward stages that read its values, ascending."""
        found: list[list[int]] = [[] for _ in range(self.forward)]
        for stage, earlier in enumerate(self.before):
            for other in earlier:
                found[other].append(stage)
        return found

    @cached_property
    def kept_values(self) -> list[list[int]]:
        """For each forward stage the values that its checkpoint keeps."""
        kept = []
        for stage in range(self.forward):
            writes = self.stages.writes[stage][: 1 if self.lean else None]
            kept.append([value for value in writes if self.forward_uses[value] or self.backward_uses[value]])
        return kept

    @cached_property
    def weight(self) -> list[int]:
        """Bytes of each forward stage's checkpoint."""
        return [sum(self.stages.size[value] for value in values) for values in self.kept_values]

    @cached_property
    def is_linear(self) -> bool:
        """Whether each forward task reads only from the one before it and from inputs."""
        return all(earlier == ([stage - 1] if stage else []) for stage, earlier in enumerate(self.before))

    def free_forward(self) -> BoolArray:
        """Return S for a forward pass that frees each value after its last forward use.

        Values that the backward produces are held. (stages + 1, values)
        """
        stages = self.stages
        held = stages.nothing_held()
        for value, maker in enumerate(stages.maker):
            if maker >= self.forward:
                held[maker + 1 :, value] = True
            elif maker >= 0 and self.forward_uses[value]:
                held[maker + 1 : self.forward_uses[value][-1] + 1, value] = True
        return held

    def segments(self, checkpoints: Collection[int], segment: Sequence[int], last: int | None = None) -> BoolArray:
        """Return S for checkpoints, and segments that are recomputed as a whole.

        Checkpoints stay. Other values of a segment are recomputed when the backward first reads one of the segment's
        values, and stay until it has read the last of them. Segment `last` is not freed before that.

        Parameters
        ----------
        checkpoints : collection of int
            Forward stages that are kept.
        segment : (forward,) ints
            Segment of each forward stage; a checkpoint's other values are recomputed with it.
        last : int, optional

        Returns
        -------
        (stages + 1, values) bool
        """
        held, stages = self.free_forward(), self.stages
        chosen = set(checkpoints)
        first_use: dict[int, int] = {}
        last_use: dict[int, int] = {}
        loose: list[tuple[int, int]] = []
        for stage in range(self.forward):
            stays = set(self.kept_values[stage]) if stage in chosen else set()
            for value in stages.writes[stage]:
                if value in stays:
                    held[stage + 1 :, value] = True
                    continue
                loose.append((value, stage))
                uses = self.backward_uses[value]
                if uses:
                    mine = segment[stage]
                    first_use[mine] = min(uses[0], first_use.get(mine, uses[0]))
                    last_use[mine] = max(uses[-1], last_use.get(mine, 0))
        for value, stage in loose:
            mine = segment[stage]
            if mine in first_use:
                start = stage + 1 if mine == last else first_use[mine] + 1
                held[start : last_use[mine] + 1, value] = True
        return held

    def saved(self, values: Collection[int]) -> BoolArray:
        """Return S for saved values: every other forward value is recomputed once, when the backward first needs it.

        It then stays until its last use. It is first needed when the backward reads it, or when a value is recomputed
        from it.

        Parameters
        ----------
        values : collection of int
            Values that the forward produces and that stay.

        Returns
        -------
        (stages + 1, values) bool
        """
        held, stages = self.free_forward(), self.stages
        never = len(stages) + 1
        first = [never] * len(stages.maker)
        for value in values:
            held[stages.maker[value] + 1 :, value] = True
        kept = set(values)
        for stage in range(self.forward - 1, -1, -1):
            lost = [value for value in stages.writes[stage] if value not in kept and not stages.fixed[value]]
            needed = [min([*self.backward_uses[value][:1], first[value]], default=never) for value in lost]
            for value, when in zip(lost, needed, strict=True):
                held[when + 1 :, value] = True
            when = min(needed, default=never)
            for value in stages.reads[stage]:
                first[value] = min(first[value], when)
        return held


def training_of(problem: Problem, name: str, *, most: int = MOST_STAGES) -> Training:
    """Find the forward and the backward of a problem.

    - Chains and adjoints: the tasks before the loss are the forward.
    - Task graphs with phases: the tasks before the first one of phase ``backward``. Forward tasks that are listed
      later, and do not depend on the backward, are included.
    - Other task graphs: the reference order is cut at the stage where the keep-all schedule holds most, as training
      does at its loss. The tasks before that stage count as the forward.

    Raises
    ------
    remat.OptionError
        If the graph is too large.
    """
    stages = stages_of(problem, name, most=most)
    graph = stages.graph
    if problem.kind in ("chain", "adjoint"):
        return Training(stages, next((t for t, must in enumerate(stages.must_run) if must), len(stages)), True)
    if graph.phase is not None and BACKWARD in (phases := [graph.phase[task] for task in stages.tasks]):
        late = _depends_on_backward(stages, phases)
        forward = late.index(True)
        plain = not any(stages.fixed[value] and stages.maker[value] >= 0 for value in range(len(stages.maker)))
        if plain and not all(late[forward:]):
            front = [task for task, is_late in zip(stages.tasks, late, strict=True) if not is_late]
            back = [task for task, is_late in zip(stages.tasks, late, strict=True) if is_late]
            return Training(stages_of(problem, name, front + back, most=most), len(front), False)
        return Training(stages, forward, False)
    return Training(stages, _peak_stage(stages), False)


def _depends_on_backward(stages: Stages, phases: Sequence[str]) -> list[bool]:
    late: list[bool] = []
    for stage, earlier in enumerate(stages.before):
        late.append(phases[stage] == BACKWARD or any(late[other] for other in earlier))
    return late


def _peak_stage(stages: Stages) -> int:
    """Return the first stage at which the keep-all schedule holds most."""
    count = len(stages)
    change = np.zeros(count + 1, dtype=object)
    for value, maker in enumerate(stages.maker):
        uses = stages.readers[value]
        last = count if value in stages.ends else max(uses, default=maker)
        if maker >= 0 or uses:
            change[max(maker, 0)] += stages.size[value]
            if last < count:
                change[last + 1] -= stages.size[value]
    use = np.cumsum(change)[:count]
    use += stages.graph.workspace[np.array(stages.tasks, dtype=np.int64)].astype(object) if count else 0
    return int(np.argmax(use)) if count else 0

"""Chains and adjoints as arrays: the expanded lists of a document."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from remat.errors import InstanceError
from remat.graph.chain import Chain, Variants
from remat.graph.taskgraph import IntArray, NumberArray, Ragged, number_array
from remat.units import Number

if TYPE_CHECKING:
    from remat.instance.adjoint import AdjointInstance
    from remat.instance.chain import ChainInstance

MOST_STAGES = 20_000_000
"""Maximum number of stages that are expanded into arrays; longer adjoints are for streaming algorithms only."""


def chain_arrays(instance: ChainInstance) -> Chain:
    """Expand a `chain` instance, including repeats."""
    stages = instance.stages
    repeat = np.array([stage.repeat for stage in stages], dtype=np.int64)

    def sizes(values: list[int]) -> IntArray:
        return np.repeat(np.array(values, dtype=np.int64), repeat)

    listed = _listed_variants(instance)
    variants = listed.repeated(repeat)
    first = variants.start[:-1]
    outputs = [stage.output_size for stage in stages]
    gradients = [stage.output_size if stage.gradient_size is None else stage.gradient_size for stage in stages]
    return Chain(
        forward_time=np.repeat(listed.forward_time, repeat),
        saving_forward_time=variants.saving_forward_time[first],
        backward_time=variants.backward_time[first],
        activation_size=np.concatenate(([instance.input_size], sizes(outputs))),
        saved_size=variants.saved_size[first],
        gradient_size=np.concatenate(([instance.input_size if instance.input_gradient else 0], sizes(gradients))),
        forward_workspace=sizes([stage.forward_workspace for stage in stages]),
        saving_workspace=variants.saving_workspace[first],
        backward_workspace=variants.backward_workspace[first],
        reads_input=variants.reads_input[first],
        reads_output=variants.reads_output[first],
        reads_saved=variants.reads_saved[first],
        in_place=instance.in_place,
        loss_time=listed.loss_time,
        loss_workspace=instance.loss.workspace,
        static_memory=instance.static_memory,
        variants=variants if len(variants.backward_time) > len(first) else None,
    )


def adjoint_arrays(instance: AdjointInstance) -> Chain:
    """Turn n adjoint steps into a chain: n-1 stages and the loss, or n stages if tapes can be stored.

    Raises
    ------
    InstanceError
        If there are too many steps for arrays.
    """
    n = instance.length
    if n > MOST_STAGES:
        raise InstanceError(f"{n:,} steps are too many to expand (at most {MOST_STAGES:,})", "$.steps")
    steps = _AdjointSteps(instance)
    taped = instance.taped
    stages = n if taped else n - 1
    state = steps.state if taped else steps.state[:n]
    none = np.zeros(stages, dtype=np.int64)
    no, yes = np.zeros(stages, dtype=bool), np.ones(stages, dtype=bool)
    return Chain(
        forward_time=steps.forward[:stages],
        saving_forward_time=steps.tape_forward[:stages],
        backward_time=steps.backward[:stages],
        activation_size=state,
        saved_size=steps.tape if taped else none,
        gradient_size=steps.adjoint if taped else steps.adjoint[:n],
        forward_workspace=none,
        saving_workspace=none,
        backward_workspace=none,
        reads_input=no if taped else yes,
        reads_output=no,
        reads_saved=yes if taped else no,
        saves=taped,
        in_place=True,
        loss_time=0 if taped else steps.backward[-1].item(),
        static_memory=instance.static_memory,
    )


class _ListedStages(NamedTuple):
    """The stages of a document, before repeats."""

    forward_time: NumberArray
    loss_time: Number
    variants: Variants

    def repeated(self, repeat: IntArray) -> Variants:
        """Return the alternatives of the expanded chain."""
        listed = self.variants
        rows = Ragged(listed.start, np.arange(listed.start[-1], dtype=np.int64))
        taken = rows.gather(np.repeat(np.arange(len(repeat), dtype=np.int64), repeat))
        columns = {
            column.name: getattr(listed, column.name)[taken.items]
            for column in fields(Variants)
            if column.name != "start"
        }
        return Variants(start=taken.start, **columns)


def _listed_variants(instance: ChainInstance) -> _ListedStages:
    stages = instance.stages
    alternatives = [stage.alternatives for stage in stages]
    listed = [stage for some in alternatives for stage in some]
    count, more = len(stages), len(stages) + len(listed)
    times = number_array(
        [
            *(stage.forward_time for stage in stages),
            *(stage.saving_time for stage in listed),
            *(stage.backward_time for stage in listed),
            instance.loss.time,
        ]
    )
    reads = [instance.backward_reads if stage.backward_reads is None else stage.backward_reads for stage in listed]
    start = np.zeros(count + 1, dtype=np.int64)
    np.cumsum([len(some) for some in alternatives], out=start[1:])
    variants = Variants(
        start=start,
        saving_forward_time=times[count:more],
        backward_time=times[more:-1],
        saved_size=np.array([stage.saved_size for stage in listed], dtype=np.int64),
        saving_workspace=np.array([stage.saving_bytes for stage in listed], dtype=np.int64),
        backward_workspace=np.array([stage.backward_workspace for stage in listed], dtype=np.int64),
        reads_input=np.array(["input" in read for read in reads]),
        reads_output=np.array(["output" in read for read in reads]),
        reads_saved=np.array(["saved" in read for read in reads]),
    )
    return _ListedStages(times[:count], times[-1].item(), variants)


class _AdjointSteps:
    """Per-step arrays of an adjoint: n times and tapes, n+1 states and adjoints (the last equals its predecessor)."""

    def __init__(self, instance: AdjointInstance) -> None:
        n = instance.length
        state, forward = instance.state_size, instance.forward_time
        adjoint = state if instance.adjoint_size is None else instance.adjoint_size
        tape_time = forward if instance.tape_time is None else instance.tape_time
        if isinstance(instance.steps, int):
            times = number_array([forward, tape_time, instance.backward_time])
            self.forward, self.tape_forward, self.backward = (np.repeat(time, n) for time in times)
            self.state = np.full(n + 1, state, dtype=np.int64)
            self.adjoint = np.full(n + 1, adjoint, dtype=np.int64)
            self.tape = np.full(n, instance.tape_size or 0, dtype=np.int64)
            if self.forward.dtype == np.int64 and n * int(times.sum()) >= 2**62:
                self.forward, self.tape_forward, self.backward = (
                    array.astype(np.float64) for array in (self.forward, self.tape_forward, self.backward)
                )
            return
        steps = instance.steps
        own_forward = [forward if step.forward_time is None else step.forward_time for step in steps]
        own_tape = []
        for step, own in zip(steps, own_forward, strict=True):
            default = own if instance.tape_time is None else instance.tape_time
            own_tape.append(default if step.tape_time is None else step.tape_time)
        own_backward = [instance.backward_time if step.backward_time is None else step.backward_time for step in steps]
        times = number_array([*own_forward, *own_tape, *own_backward])
        self.forward, self.tape_forward, self.backward = times[:n], times[n : 2 * n], times[2 * n :]
        states = [state if step.state_size is None else step.state_size for step in steps]
        adjoints = []
        for step, own_state in zip(steps, states, strict=True):
            default_adjoint = own_state if instance.adjoint_size is None else instance.adjoint_size
            adjoints.append(default_adjoint if step.adjoint_size is None else step.adjoint_size)
        tapes = [(instance.tape_size or 0) if step.tape_size is None else step.tape_size for step in steps]
        self.state = np.array([*states, states[-1]], dtype=np.int64)
        self.adjoint = np.array([*adjoints, adjoints[-1]], dtype=np.int64)
        self.tape = np.array(tapes, dtype=np.int64)

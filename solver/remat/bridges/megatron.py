"""A plan as flags of Megatron-LM, with notes on what the flags cannot express."""

from __future__ import annotations

from dataclasses import dataclass

from remat.schedule.orders import Orders, Phase
from remat.schedule.recompute import segments_of
from remat.solving.questions.plan import Planned


@dataclass(frozen=True)
class Flags:
    """Flags with their values, without dashes, in order, and notes on the decisions that they do not express."""

    flags: tuple[str, ...]
    notes: tuple[str, ...]


def megatron_flags(planned: Planned) -> Flags:
    """Return the flags that approximate a plan best.

    Parameters
    ----------
    planned : Planned
        With orders.
    """
    orders, instance = planned.result.orders, planned.instance
    assert orders is not None
    devices = sorted({stage.device for stage in orders.stages})
    samples = instance.samples or 1
    flags = [f"pipeline-model-parallel-size {len(devices)}", f"tensor-model-parallel-size {orders.largest_group}"]
    notes: list[str] = []
    if not planned.degrees.tensor:
        counts_ = ", ".join(str(stage.tensor) for stage in orders.stages)
        notes.append(f"stages are run by {counts_} devices together; there, it is one number for all")
    flags.append(f"micro-batch-size {samples}")
    flags.append(f"global-batch-size {samples * instance.micro_batches * instance.ranks}")
    if instance.samples is None:
        notes.append(
            "the instance does not say how many samples a micro-batch has: sizes of batches are in micro-batches"
        )
    chunks = len(orders.stages) // len(devices)
    counts = [len(stage.layers) for stage in orders.stages]
    turns = [stage.device for stage in orders.stages] == devices * chunks
    flags.append(f"num-layers {instance.length}")
    if chunks > 1 and turns and len(set(counts)) == 1:
        flags.append(f"num-layers-per-virtual-pipeline-stage {counts[0]}")
    elif chunks > 1:
        notes.append(
            f"{chunks} stages per device "
            + ("of different lengths" if turns else "that are not distributed round-robin (such as a V)")
            + ": Megatron's virtual stages are equal and round-robin"
        )
    if len(set(counts)) > 1:
        listed = ", ".join(map(str, counts))
        notes.append(f"stages have {listed} layers; without its layout option, Megatron makes all stages equal")
    recompute, note = _recompute(orders, instance.micro_batches)
    flags += recompute
    notes += note
    if instance.sharding is not None:
        notes.append(f"{instance.ranks} ranks follow from the number of processes")
        if instance.sharding.zero == 1:
            flags.append("use-distributed-optimizer")
        elif instance.sharding.zero > 1:
            notes.append(f"Megatron does not combine level {instance.sharding.zero} of ZeRO with pipelines")
    if any(one.phase is Phase.W for listed in orders.lists for one in listed):
        notes.append("the halves of backwards run separately (zero bubble): Megatron runs whole backwards")
    if any(one.phase is Phase.R for listed in orders.lists for one in listed):
        notes.append("some layers are recomputed before their gradient arrives; Megatron waits for the gradient")
    notes.append(
        "Megatron's order of operations is 1F1B, interleaved with virtual stages: no flag selects another order"
    )
    return Flags(tuple(flags), tuple(notes))


def _recompute(orders: Orders, batches: int) -> tuple[list[str], list[str]]:
    """Return the recomputation flags: the same number of layers in each stage, for all micro-batches."""
    counts = {
        (index, batch): sum(map(len, segments_of(stage.recompute, batch)))
        for index, stage in enumerate(orders.stages)
        for batch in range(batches)
    }
    most = max(counts.values(), default=0)
    if not most:
        return [], []
    flags = ["recompute-granularity full", "recompute-method block", f"recompute-num-layers {most}"]
    if len(set(counts.values())) == 1:
        return flags, []
    note = (
        f"the number of recomputed layers differs by stage and micro-batch, 0 to {most} per stage; Megatron has one "
        "number for all stages, and the largest is safe"
    )
    return flags, [note]

"""A plan as flags of Megatron-LM, with notes on what the flags cannot express."""

from __future__ import annotations

from dataclasses import dataclass

from remat.schedule.orders import Orders, Phase
from remat.schedule.recompute import segments_of
from remat.solving.questions.plan import Planned


@dataclass(frozen=True)
class Flags:
    """Flags with their values, without dashes, in order, and notes on what they leave out."""

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
            f"{chunks} stages a device "
            + ("of different lengths" if turns else "that are not dealt out in turns (a V, for one)")
            + ": there, virtual stages are equal and in turns"
        )
    if len(set(counts)) > 1:
        listed = ", ".join(map(str, counts))
        notes.append(f"stages have {listed} layers; without a layout of its own, all have as many")
    recompute, note = _recompute(orders, instance.micro_batches)
    flags += recompute
    notes += note
    if instance.sharding is not None:
        notes.append(f"{instance.ranks} ranks follow from the number of processes")
        if instance.sharding.zero == 1:
            flags.append("use-distributed-optimizer")
        elif instance.sharding.zero > 1:
            notes.append(f"stage {instance.sharding.zero} of ZeRO goes with no pipeline there")
    if any(one.phase is Phase.W for listed in orders.lists for one in listed):
        notes.append("halves of backwards run apart (zero bubble): there, backwards are whole")
    if any(one.phase is Phase.R for listed in orders.lists for one in listed):
        notes.append("some layers run again before their gradient is there; there, when it has come")
    notes.append("the order of operations is 1F1B there, interleaved with virtual stages: no flag says another one")
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
        f"layers that run again differ by stage and micro-batch, 0 to {most} of a stage; there it is one number "
        "for all, of which the largest is safe"
    )
    return flags, [note]

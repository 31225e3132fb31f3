"""Lowering: every kind of instance is converted to one task graph on one machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from remat.errors import OptionError
from remat.graph.canonical import Uses, canonical
from remat.graph.chain import Chain
from remat.graph.machine import Machine
from remat.graph.taskgraph import TaskGraph
from remat.instance.kinds import is_adjoint, is_dag, is_pipeline

if TYPE_CHECKING:
    from remat.graph.samples import Samples
    from remat.instance import Instance, MachineModel, PipelineInstance
    from remat.instance.tensor import Degree

__all__ = ["chain_of", "lower", "machine_of", "repeated_of", "samples_of"]


def _of(module: str, function: str) -> Any:
    """Import the lowering of a kind on first use."""
    return getattr(import_module(f"remat.instance.lowering.{module}"), function)


def lower(instance: Instance, machine: Machine | None = None, degrees: Sequence[Degree] = ()) -> TaskGraph:
    """Return the task graph of an instance (O(size of the instance)) on a machine, by default the instance's own.

    For a pipeline, `degrees` states for each layer how devices share every micro-batch; by default none does.
    """
    if (samples := samples_of(instance, machine)) is not None:
        return samples.repeated()
    graph: TaskGraph
    if instance.kind in ("chain", "dag", "join"):
        on = machine_of(instance) if machine is None else machine
        graph = _of(instance.kind, f"lower_{instance.kind}")(instance, on)
    elif is_pipeline(instance):
        graph = _of("pipeline", "lower_pipeline")(instance, degrees)
    else:
        module = "chain" if is_adjoint(instance) else instance.kind
        graph = _of(module, f"lower_{instance.kind}")(instance)
    return graph


def samples_of(instance: Instance, machine: Machine | None = None, count: int | None = None) -> Samples | None:
    """Return the graph of one sample, with the number of samples to examine (or `count`).

    None if the instance is not a stream whose tasks run for one sample after the other.
    """
    seen = instance.samples_seen
    if seen is None:
        return None
    from remat.graph.samples import Samples

    if is_dag(instance):
        graph = _of("dag", "lower_dag")(instance, machine_of(instance) if machine is None else machine)
    else:
        graph = _of("inference", "lower_inference")(instance)
    return Samples(graph, seen if count is None else count)


def repeated_of(instance: Instance, machine: Machine | None = None) -> Samples:
    """Return what a stream repeats: the graph of one sample or micro-batch, with the number of them to examine."""
    samples = samples_of(instance, machine)
    if samples is not None:
        return samples
    from remat.graph.samples import Samples

    assert is_pipeline(instance)
    return Samples(lower(instance.model_copy(update={"micro_batches": 1})), instance.micro_batches)


def chain_of(instance: Instance) -> Chain:
    """Return a chain or an adjoint as arrays (O(stages)); TypeError for other kinds (see `BaseInstance.is_chain`)."""
    if not instance.is_chain:
        raise TypeError(f"a {instance.kind} instance is not a chain")
    arrays: Chain = _of("chain_arrays", f"{instance.kind}_arrays")(instance)
    return arrays


def machine_of(instance: Instance, model: MachineModel | None = None) -> Machine:
    """Return the machine of an instance, in canonical order (see `remat.graph.canonical`).

    Parameters
    ----------
    instance : Instance
    model : MachineModel, optional
        Replaces the instance's own machine, the one built from an adjoint's storage, or the default.
    """
    uses: Callable[[], Uses] = partial(_of("uses", "uses_of"), instance)
    model = instance.machine if model is None else model
    if model is not None:
        machine = model.build(uses, instance.compression_ratios)
        if is_pipeline(instance):
            _check_memories(instance, machine)
        return machine
    if is_pipeline(instance):
        return instance.build_machine()
    if is_adjoint(instance) and instance.has_storage:
        levels: Machine = _of("chain", "machine_of_adjoint")(instance)
        return canonical(levels, uses)
    return Machine()


def _check_memories(instance: PipelineInstance, machine: Machine) -> None:
    """Refuse a common memory of several devices where a pipeline's rules are about devices, not memories."""
    if instance.cluster.transfers != "overlap":
        reason = f"{instance.cluster.transfers} transfers block devices"
    elif instance.closes:
        reason = "every device updates its own parameters"
    elif instance.sharding is not None:
        reason = "ranks have parameters of their own"
    else:
        return
    owner: dict[int, str] = {}
    for processor in machine.processors:
        other = owner.setdefault(processor.memory, processor.name)
        if other != processor.name:
            text = f"{other} and {processor.name} have one memory, {machine.memories[processor.memory].name}"
            raise OptionError(f"{text}, and {reason}; give each device a memory", argument="machine")

"""Lowering: every kind of instance becomes one task graph on one machine."""

from __future__ import annotations

from collections.abc import Sequence

from remat.graph.chain import Chain
from remat.graph.machine import Machine
from remat.graph.samples import Samples
from remat.graph.taskgraph import TaskGraph
from remat.instance import (
    AdjointInstance,
    ChainInstance,
    DagInstance,
    Instance,
    JoinInstance,
    PipelineInstance,
    TreeInstance,
)
from remat.instance.lowering.chain import lower_adjoint, lower_chain, machine_of_adjoint
from remat.instance.lowering.chain_arrays import adjoint_arrays, chain_arrays
from remat.instance.lowering.dag import lower_dag
from remat.instance.lowering.join import lower_join
from remat.instance.lowering.pipeline import lower_pipeline
from remat.instance.lowering.tree import lower_tree

__all__ = ["chain_of", "lower", "machine_of", "samples_of"]


def lower(instance: Instance, machine: Machine | None = None, degrees: Sequence[int] = ()) -> TaskGraph:
    """Return the task graph of an instance (O(size of the instance)) on a machine, its own if not given.

    `degrees`, of a pipeline, says for each layer how many devices share every micro-batch; by default one.
    """
    if (samples := samples_of(instance, machine)) is not None:
        return samples.repeated()
    match instance:
        case ChainInstance():
            return lower_chain(instance)
        case AdjointInstance():
            return lower_adjoint(instance)
        case DagInstance():
            return lower_dag(instance, machine_of(instance) if machine is None else machine)
        case TreeInstance():
            return lower_tree(instance)
        case PipelineInstance():
            return lower_pipeline(instance, degrees)
        case JoinInstance():
            return lower_join(instance)


def samples_of(instance: Instance, machine: Machine | None = None, count: int | None = None) -> Samples | None:
    """Return the graph of one sample, and of how many the instance looks at (or `count`).

    None where an instance is no stream whose tasks are run for one sample after the other.
    """
    seen = instance.samples_seen
    if seen is None:
        return None
    assert isinstance(instance, DagInstance)
    graph = lower_dag(instance, machine_of(instance) if machine is None else machine)
    return Samples(graph, seen if count is None else count)


def chain_of(instance: Instance) -> Chain:
    """Return a chain or an adjoint as arrays (O(stages)); TypeError for other kinds (see `BaseInstance.is_chain`)."""
    match instance:
        case ChainInstance():
            return chain_arrays(instance)
        case AdjointInstance():
            return adjoint_arrays(instance)
        case _:
            raise TypeError(f"a {instance.kind} instance is not a chain")


def machine_of(instance: Instance) -> Machine:
    """Return the machine of an instance: its own, the one built from an adjoint's storage, or the default."""
    if instance.machine is not None:
        return instance.machine.build()
    if isinstance(instance, PipelineInstance):
        return instance.build_machine()
    if isinstance(instance, AdjointInstance) and instance.has_storage:
        return machine_of_adjoint(instance)
    return Machine()

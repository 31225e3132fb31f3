"""Chains and adjoints as task graphs.

Values x0..xL (activations), s1..sL (saved), y0..yL (gradients); tasks F1..FL, Fe1..FeL (saving forwards), loss, B1..BL.
Without saving forwards (classical adjoints), Fe and s do not exist. If stage 7 has several variants, it has Fe7.1,
Fe7.2, .., s7.1, .., B7.1, .. instead.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from remat.graph.chain import Chain
from remat.graph.machine import Link, Machine, Memory, Processor
from remat.graph.names import NumberedNames, StageNames
from remat.graph.taskgraph import BoolArray, IntArray, Ragged, Resident, TaskGraph
from remat.instance.lowering.chain_arrays import adjoint_arrays, chain_arrays
from remat.units import Number, Units

if TYPE_CHECKING:
    from remat.instance import AdjointInstance, ChainInstance


def lower_chain(instance: ChainInstance, machine: Machine) -> TaskGraph:
    """Lower a `chain` instance, including its parameters, if any."""
    graph = graph_of_chain(chain_arrays(instance), (Resident(0),), instance.units.build())
    if any(link.packed for link in machine.links):
        graph = replace(graph, ratios=ratios_of(instance))
    if instance.has_parameters:
        from remat.instance.lowering.weights import with_parameters

        graph = with_parameters(graph, instance, machine)
    return with_stage_names(graph, [instance.stages])


def ratios_of(instance: ChainInstance) -> dict[int, Number]:
    """Return the compression ratios of x0, x1, .. and s1, .., in all variants, where they are not those of the link."""
    stages = [stage for stage in instance.stages for _ in range(stage.repeat)]
    outputs = [instance.input_ratio, *(stage.output_ratio for stage in stages)]
    saved = [stage.saved_ratio for stage in stages for _ in stage.alternatives]
    return {value: ratio for value, ratio in enumerate((*outputs, *saved)) if ratio is not None}


class _Named(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def repeat(self) -> int: ...


def with_stage_names(graph: TaskGraph, chains: Sequence[Sequence[_Named]], *, joined: bool = False) -> TaskGraph:
    """Return the graph with the user's names of the stages, if any has one (see `StageNames`)."""
    if not any(stage.name for stages in chains for stage in stages):
        return graph
    named = tuple(tuple((stage.name, stage.repeat) for stage in stages) for stages in chains)
    return replace(graph, modules=StageNames(graph.tasks, named, joined=joined))


def lower_adjoint(instance: AdjointInstance) -> TaskGraph:
    """Lower an `adjoint` instance; the level that `initial_state` names also holds x0."""
    inputs = [Resident(0)]
    if instance.initial_state != "live":
        inputs.append(Resident(0, instance.initial_state))
    return graph_of_chain(adjoint_arrays(instance), tuple(inputs), instance.units.build())


def machine_of_adjoint(instance: AdjointInstance) -> Machine:
    """Build the machine of an adjoint with storage: memory `working`, linked in both directions to each level."""
    state, working = _working_sizes(instance)
    memories = [Memory("working", working + instance.static_memory)]
    processor = Processor("processor", 0)
    links = []
    for index, level in enumerate(instance.storage, start=1):
        capacity = level.capacity if level.slots is None else level.slots * state
        memories.append(Memory(level.name, capacity))
        channel = level.channel or processor.name
        for source, target, latency in ((0, index, level.write_time), (index, 0, level.read_time)):
            links.append(
                Link(source=source, target=target, bandwidth=level.bandwidth, latency=latency, channel=channel)
            )
    return Machine(tuple(memories), (processor,), tuple(links))


def _working_sizes(instance: AdjointInstance) -> tuple[int, int]:
    """Return the size of the largest state, and the largest sum of state, adjoint and tape."""
    if isinstance(instance.steps, int):  # avoid an array of the adjoint's length
        adjoint = instance.state_size if instance.adjoint_size is None else instance.adjoint_size
        return instance.state_size, instance.state_size + adjoint + (instance.tape_size or 0)
    chain = adjoint_arrays(instance)
    state = int(chain.activation_size.max())
    return state, state + int(chain.gradient_size.max()) + int(chain.saved_size.max(initial=0))


def graph_of_chain(chain: Chain, inputs: tuple[Resident, ...], units: Units) -> TaskGraph:
    """Build the task graph of a chain given as arrays (O(L + alternatives)).

    If a stage has several variants, Fe{i}.{v} writes s{i}.{v}. B{i}.{v} reads it and may run at most once. No single
    variant is required, but one of them is needed for the stage's gradient.
    """
    length = chain.length
    ways = chain.alternatives
    stage = ways.stage
    count = len(stage)
    saves = count if chain.saves else 0
    x = np.arange(length + 1, dtype=np.int64)
    s = length + 1 + np.arange(count, dtype=np.int64)
    y = length + 1 + saves + np.arange(length + 1, dtype=np.int64)

    backward_reads = _columns(
        (y[1:][stage], np.ones(count, dtype=bool)),
        (x[:-1][stage], ways.reads_input),
        (x[1:][stage], ways.reads_output),
        (s, ways.reads_saved & chain.saves),
    )
    one = np.array([0, 1], dtype=np.int64)
    saving_writes = np.column_stack((x[1:][stage], s)).ravel()[: 2 * saves]
    reads = _stack([_single(x[:-1]), _single(x[:-1][stage][:saves]), Ragged(one, x[-1:]), backward_reads])
    writes = _stack(
        [
            _single(x[1:]),
            Ragged(2 * np.arange(saves + 1, dtype=np.int64), saving_writes),
            Ragged(one, y[-1:]),
            _single(y[:-1][stage]),
        ]
    )
    tasks = length + saves + 1 + count
    required, recomputable = np.zeros(tasks, dtype=bool), np.ones(tasks, dtype=bool)
    required[length + saves :] = True
    if chain.variants is not None:
        alternative = np.diff(ways.start)[stage] > 1
        required[length + saves + 1 :] = ~alternative
        recomputable[length + saves + 1 :] = ~alternative
    return TaskGraph(
        tasks=_task_names(chain, saves > 0),
        values=NumberedNames([("x", 0, length + 1), *_way_names("s", chain, saves > 0), ("y", 0, length + 1)]),
        time=np.concatenate(
            (chain.forward_time, ways.saving_forward_time[:saves], _loss_time(chain), ways.backward_time)
        ),
        size=np.concatenate((chain.activation_size, ways.saved_size[:saves], chain.gradient_size)),
        reads=reads,
        writes=writes,
        workspace=np.concatenate(
            (
                chain.forward_workspace,
                ways.saving_workspace[:saves],
                np.array([chain.loss_workspace], dtype=np.int64),
                ways.backward_workspace,
            )
        ),
        in_place=np.full(tasks, chain.in_place),
        required=required,
        recomputable=recomputable,
        once=required.copy(),
        inputs=inputs,
        outputs=(Resident(int(y[0])),),
        static_memory=chain.static_memory,
        cheapest=None if chain.variants is None else cheapest_tasks(chain),
        units=units,
    )


def cheapest_tasks(chain: Chain) -> BoolArray:
    """Choose for each stage the variant with the minimum time of forward plus backward.

    In every schedule, each stage's backward runs, and so does a forward: the one that the backward reads, or another.
    """
    ways, length = chain.alternatives, chain.length
    count = len(ways.backward_time)
    chosen = np.zeros(length + 2 * count + 1, dtype=bool)
    chosen[length + count] = True
    for stage, (first, end) in enumerate(itertools.pairwise(ways.start.tolist())):
        saving = ways.saving_forward_time[first:end]
        quickest = int(np.argmin(saving))
        plain = bool(chain.forward_time[stage] <= saving[quickest])
        forward = np.where(ways.reads_saved[first:end], saving, min(chain.forward_time[stage], saving[quickest]))
        best = int(np.argmin(forward + ways.backward_time[first:end]))
        if ways.reads_saved[first + best]:
            chosen[length + first + best] = True
        else:
            chosen[stage if plain else length + first + quickest] = True
        chosen[length + count + 1 + first + best] = True
    return chosen


def _task_names(chain: Chain, saves: bool) -> NumberedNames:
    saving = _way_names("Fe", chain, saves)
    return NumberedNames([("F", 1, chain.length), *saving, ("loss", None, 1), *_way_names("B", chain, True)])


def _way_names(prefix: str, chain: Chain, present: bool) -> list[tuple[str, int | None, int]]:
    """Names for each alternative: B7 if stage 7 has only one, otherwise B7.1, B7.2, ..."""
    if not present:
        return []
    if chain.variants is None:
        return [(prefix, 1, chain.length)]
    runs: list[tuple[str, int | None, int]] = []
    plain = 0
    for stage, ways in enumerate(np.diff(chain.variants.start).tolist(), start=1):
        if ways == 1:
            plain += 1
            continue
        runs += [(prefix, stage - plain, plain), (f"{prefix}{stage}.", 1, ways)]
        plain = 0
    return [*runs, (prefix, chain.length + 1 - plain, plain)]


def _single(items: IntArray) -> Ragged:
    """Return rows with one item each."""
    return Ragged(np.arange(len(items) + 1, dtype=np.int64), items)


def _loss_time(chain: Chain) -> np.ndarray:
    # An empty chain (one adjoint step) has no times from which to take the type.
    if chain.length == 0:
        return np.array([chain.loss_time])
    return np.array([chain.loss_time], dtype=chain.forward_time.dtype)


def _columns(*columns: tuple[IntArray, np.ndarray]) -> Ragged:
    """Return rows with the entries of several columns; masks select the entries that are present."""
    rows = len(columns[0][0])
    present = np.column_stack([mask for _, mask in columns]).reshape(rows, len(columns))
    # Columns without values (s if nothing is saved) are never present.
    filled = [items if len(items) == rows else np.zeros(rows, dtype=np.int64) for items, _ in columns]
    items = np.column_stack(filled).reshape(rows, len(columns))
    start = np.concatenate(([0], np.cumsum(present.sum(axis=1, dtype=np.int64))))
    return Ragged(start, items[present])


def _stack(parts: list[Ragged]) -> Ragged:
    """Concatenate the rows of several ragged arrays."""
    counts = np.concatenate([part.counts for part in parts])
    return Ragged(np.concatenate(([0], np.cumsum(counts))), np.concatenate([part.items for part in parts]))

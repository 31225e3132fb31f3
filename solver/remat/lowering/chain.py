"""Chains and adjoints as task graphs.

Values x0..xL (activations), s1..sL (saved), y0..yL (gradients); tasks F1..FL, Fe1..FeL (the forward that
saves), loss, B1..BL. Without saving forwards (classical adjoints) there are no Fe and no s.
"""

from __future__ import annotations

import numpy as np

from remat.chain import Chain
from remat.instance import AdjointInstance, ChainInstance
from remat.machine import Link, Machine, Memory, Processor
from remat.names import NumberedNames
from remat.taskgraph import IntArray, Ragged, Resident, TaskGraph
from remat.units import Units


def lower_chain(instance: ChainInstance) -> TaskGraph:
    """Lower a `chain` instance."""
    return graph_of_chain(Chain.from_chain(instance), (Resident(0),), instance.units.build())


def lower_adjoint(instance: AdjointInstance) -> TaskGraph:
    """Lower an `adjoint` instance; x0 also lies in the level that `initial_state` names."""
    inputs = [Resident(0)]
    if instance.initial_state != "live":
        inputs.append(Resident(0, instance.initial_state))
    return graph_of_chain(Chain.from_adjoint(instance), tuple(inputs), instance.units.build())


def machine_of_adjoint(instance: AdjointInstance) -> Machine:
    """Build the machine of an adjoint with storage: memory `working`, and each level linked to it both ways."""
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
    """Return the largest state, and the largest state, adjoint and tape together."""
    if isinstance(instance.steps, int):  # without an array as long as the adjoint
        adjoint = instance.state_size if instance.adjoint_size is None else instance.adjoint_size
        return instance.state_size, instance.state_size + adjoint + (instance.tape_size or 0)
    chain = Chain.from_adjoint(instance)
    state = int(chain.activation_size.max())
    return state, state + int(chain.gradient_size.max()) + int(chain.saved_size.max(initial=0))


def graph_of_chain(chain: Chain, inputs: tuple[Resident, ...], units: Units) -> TaskGraph:
    """Build the task graph of a chain given as arrays (O(L))."""
    length = chain.length
    saves = length if chain.saves else 0
    stage = np.arange(length, dtype=np.int64)
    x = np.arange(length + 1, dtype=np.int64)
    s = length + 1 + stage
    y = length + 1 + saves + np.arange(length + 1, dtype=np.int64)

    backward_reads = _columns(
        (y[1:], np.ones(length, dtype=bool)),
        (x[:-1], chain.reads_input),
        (x[1:], chain.reads_output),
        (s, chain.reads_saved & chain.saves),
    )
    forward_reads = Ragged(np.arange(length + 1, dtype=np.int64), x[:-1])
    forward_writes = Ragged(np.arange(length + 1, dtype=np.int64), x[1:])
    saving_writes = Ragged(2 * np.arange(saves + 1, dtype=np.int64), np.column_stack((x[1:], s)).ravel()[: 2 * saves])
    one = np.array([0, 1], dtype=np.int64)
    saving_rows = [forward_reads] if chain.saves else []
    reads = _stack([forward_reads, *saving_rows, Ragged(one, x[-1:]), backward_reads])
    writes = _stack(
        [
            forward_writes,
            *([saving_writes] if chain.saves else []),
            Ragged(one, y[-1:]),
            Ragged(np.arange(length + 1, dtype=np.int64), y[:-1]),
        ]
    )
    count = 2 * length + saves + 1
    saving = slice(0, saves)
    required = np.zeros(count, dtype=bool)
    required[length + saves :] = True
    return TaskGraph(
        tasks=NumberedNames([("F", 1, length), ("Fe", 1, saves), ("loss", None, 1), ("B", 1, length)]),
        values=NumberedNames([("x", 0, length + 1), ("s", 1, saves), ("y", 0, length + 1)]),
        time=np.concatenate(
            (chain.forward_time, chain.saving_forward_time[saving], _loss_time(chain), chain.backward_time)
        ),
        size=np.concatenate((chain.activation_size, chain.saved_size[saving], chain.gradient_size)),
        reads=reads,
        writes=writes,
        workspace=np.concatenate(
            (
                chain.forward_workspace,
                chain.saving_workspace[saving],
                np.array([chain.loss_workspace], dtype=np.int64),
                chain.backward_workspace,
            )
        ),
        in_place=np.full(count, chain.in_place),
        required=required,
        recomputable=np.ones(count, dtype=bool),
        once=required.copy(),
        inputs=inputs,
        outputs=(Resident(int(y[0])),),
        static_memory=chain.static_memory,
        units=units,
    )


def _loss_time(chain: Chain) -> np.ndarray:
    # An empty chain (one adjoint step) has no times of its own to take the type from.
    if chain.length == 0:
        return np.array([chain.loss_time])
    return np.array([chain.loss_time], dtype=chain.forward_time.dtype)


def _columns(*columns: tuple[IntArray, np.ndarray]) -> Ragged:
    """Rows made of the entries of several columns, each present where its mask says so."""
    rows = len(columns[0][0])
    present = np.column_stack([mask for _, mask in columns]).reshape(rows, len(columns))
    # Columns without values (s where nothing is saved) are never present.
    filled = [items if len(items) == rows else np.zeros(rows, dtype=np.int64) for items, _ in columns]
    items = np.column_stack(filled).reshape(rows, len(columns))
    start = np.concatenate(([0], np.cumsum(present.sum(axis=1, dtype=np.int64))))
    return Ragged(start, items[present])


def _stack(parts: list[Ragged]) -> Ragged:
    """Put the rows of several ragged arrays below each other."""
    counts = np.concatenate([part.counts for part in parts])
    return Ragged(np.concatenate(([0], np.cumsum(counts))), np.concatenate([part.items for part in parts]))

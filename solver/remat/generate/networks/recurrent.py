"""Backpropagation through time of a recurrent layer, as a loop of equal steps.

A step reads the previous state and a token's input of the same width, which stays in memory. For h units and B
sequences, the cells are:

- `lstm` (Hochreiter and Schmidhuber 1997, with forget gates): 4 gates, 16 B h^2 FLOP. The state has 2 B h entries
  (hidden and cell activations), the tape 5 B h entries (the gates and the activated cell);
- `rnn` (Elman 1990): 1 gate, 4 B h^2 FLOP, a state of B h entries, and a tape of B h entries (its activation).

The backward of a step takes twice its forward. Gruslys et al. 2016, *Memory-efficient backpropagation through time*,
compare three policies for such loops: keep hidden states (the state), internal states (the tape), or both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from remat.generate import check
from remat.generate.adjoint import Level, time_loop
from remat.generate.devices import DEFAULT
from remat.generate.document import Document
from remat.generate.networks.operations import BYTES, roofline


class Cell(NamedTuple):
    """Gates of a cell, and the entries of its state and of its tape for each unit."""

    gates: int
    state: int
    tape: int


CELLS = {"lstm": Cell(4, 2, 5), "rnn": Cell(1, 1, 1)}


def recurrent(
    *,
    cell: str = "lstm",
    steps: int = 1000,
    hidden: int = 1024,
    batch: int = 32,
    dtype: str = "fp32",
    storage: str | Sequence[Level] = "",
    initial_state: str = "live",
    flops: float | None = None,
    bandwidth: float | None = None,
    device: str = DEFAULT,
) -> Document:
    """Return the loop of a recurrent layer over a number of tokens.

    Parameters
    ----------
    cell : {"lstm", "rnn"}
    steps : int
        Tokens of a sequence.
    hidden, batch : int
        Units of the layer, and sequences.
    dtype : {"fp16", "bf16", "fp32"}
    storage, initial_state
        As for `remat.generate.adjoint.time_loop`.
    flops, bandwidth : float, optional
        Default: those of the device for `dtype`.
    device : str
        A device of the shipped table (`remat.generate.devices`).

    Returns
    -------
    dict
        Kind ``adjoint``, seconds and bytes; ValueError for a parameter out of range, or sizes beyond 2^62 bytes.
    """
    check.choice("cell", cell, tuple(CELLS))
    check.choice("dtype", dtype, tuple(BYTES))
    width = check.integer("hidden", hidden, minimum=1)
    sequences = check.integer("batch", batch, minimum=1)
    machine, element, kind = roofline(dtype, flops, bandwidth, device), BYTES[dtype], CELLS[cell]
    entries = sequences * width
    length = check.integer("steps", steps, minimum=1)
    check.total([length * entries * element * (2 * kind.state + kind.tape)], "make the batch or the sequence smaller")
    weights = kind.gates * width * (2 * width + 1)
    arithmetic = 2 * 2 * kind.gates * entries * width
    traffic = element * (weights + entries * (1 + 2 * kind.state + kind.tape))
    made = time_loop(
        steps=steps,
        forward_time=machine.time(arithmetic, traffic),
        backward_time=machine.time(2 * arithmetic, 2 * traffic),
        state_size=kind.state * entries * element,
        tape_size=kind.tape * entries * element,
        storage=storage,
        initial_state=initial_state,
        units="si",
    )
    made["name"] = f"{cell}_h{hidden}_b{batch}_n{steps}_{dtype}"
    made["description"] = (
        f"Backpropagation through time of {cell.upper()} cells with {hidden} units over {steps} tokens, {batch} "
        f"sequences, {dtype}; times of a roofline"
    )
    return made

"""Synthetic chains: every stage drawn, or all stages equal."""

from __future__ import annotations

from remat.generate import check
from remat.generate.check import Number
from remat.generate.document import Document, document, units_of
from remat.generate.draw import Draw

LONGEST = 1_000_000


def random_chain(
    *,
    length: int = 50,
    min_time: int = 1,
    max_time: int = 100,
    min_size: int = 1,
    max_size: int = 1000,
    saved_factor: Number = 3,
    max_workspace: int = 0,
    zero_probability: float = 0.0,
    input_gradient: bool = True,
    units: str = "unit",
    seed: int = 0,
) -> Document:
    """Return a heterogeneous chain with integer times and sizes drawn uniformly.

    Parameters
    ----------
    length : int
        Number of stages.
    min_time, max_time : int
        Range of forward times; a backward takes between one and three times its forward.
    min_size, max_size : int
        Range of output sizes, the input's included.
    saved_factor : number
        Saved sizes lie between 0 and this many times `max_size`.
    max_workspace : int
        Forward and backward workspaces lie between 0 and this.
    zero_probability : float
        Probability of each single time and size to be 0 instead.
    input_gradient : bool
        Whether the gradient of the chain's input is wanted.
    units : {"unit", "si"}
        Whether the numbers are plain units, or seconds and bytes.
    seed : int

    Returns
    -------
    dict
        Kind ``chain``. ValueError for a parameter out of range, or sizes beyond 2^62.
    """
    check.integer("length", length, minimum=1, maximum=LONGEST)
    least_time, most_time = check.bounds("min_time", min_time, "max_time", max_time)
    least_size, most_size = check.bounds("min_size", min_size, "max_size", max_size)
    factor = check.number("saved_factor", saved_factor)
    if factor * most_size > check.LARGEST_SIZE:
        raise ValueError(f"saved_factor {factor:g} times max_size {most_size} is above 2^62; lower one of them")
    most_saved = int(factor * most_size)
    check.integer("max_workspace", max_workspace)
    zero = check.probability("zero_probability", zero_probability)
    check.choice("units", units, ("unit", "si"))
    check.total([length * (2 * most_size + most_saved + 3 * max_workspace)], "lower max_size or length")
    draw = Draw(check.seed(seed))
    input_size = draw.size(least_size, most_size, zero)

    def stage() -> dict[str, int]:
        forward = draw.size(least_time, most_time, zero)
        drawn = {
            "forward_time": forward,
            "backward_time": draw.size(forward, 3 * forward, zero),
            "output_size": draw.size(least_size, most_size, zero),
            "saved_size": draw.size(0, most_saved, zero),
        }
        for name in ("forward_workspace", "backward_workspace") if max_workspace else ():
            drawn[name] = draw.size(0, max_workspace, zero)
        return drawn

    return document(
        kind="chain",
        name=f"random_chain_l{length}_seed{seed}",
        description=(
            f"Random heterogeneous chain of {length} stages: forward times {least_time} to {most_time}, "
            f"sizes {least_size} to {most_size}, saved sizes up to {most_saved}, seed {seed}"
        ),
        units=units_of(units),
        input_size=input_size,
        stages=[stage() for _ in range(length)],
        input_gradient=None if input_gradient else False,
    )


def homogeneous_chain(
    *,
    length: int = 50,
    forward_time: Number = 1,
    backward_time: Number = 2,
    output_size: int = 1,
    saved_size: int = 3,
    workspace: int = 0,
    input_gradient: bool = True,
    units: str = "unit",
) -> Document:
    """Return a chain of equal stages.

    Parameters
    ----------
    length : int
        Number of stages.
    forward_time, backward_time : number
    output_size : int
        Also the size of the chain's input.
    saved_size : int
        What a backward needs beyond its stage's input and output.
    workspace : int
        Workspace of forwards and backwards.
    input_gradient : bool
        Whether the gradient of the chain's input is wanted.
    units : {"unit", "si"}
        Whether the numbers are plain units, or seconds and bytes.

    Returns
    -------
    dict
        Kind ``chain``, one stage with `repeat`.

    Raises
    ------
    ValueError
        A parameter out of range, or sizes beyond 2^62.
    """
    check.integer("length", length, minimum=1, maximum=LONGEST)
    size = check.integer("output_size", output_size)
    saved = check.integer("saved_size", saved_size)
    check.integer("workspace", workspace)
    check.choice("units", units, ("unit", "si"))
    check.total([length * (2 * size + saved + 3 * workspace) + 2 * size], "lower the sizes or length")
    stage = {
        "forward_time": check.number("forward_time", forward_time),
        "backward_time": check.number("backward_time", backward_time),
        "output_size": size,
        "saved_size": saved,
        "forward_workspace": workspace,
        "backward_workspace": workspace,
        "repeat": length,
    }
    return document(
        kind="chain",
        name=f"homogeneous_chain_l{length}",
        description=f"Chain of {length} equal stages: forward {forward_time}, backward {backward_time}, "
        f"output {size}, saved {saved}, workspace {workspace}",
        units=units_of(units),
        input_size=size,
        stages=[stage],
        input_gradient=None if input_gradient else False,
    )

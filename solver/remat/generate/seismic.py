"""A loop of seismic inversion: the acoustic wave equation on a regular grid, as in reverse-time migration.

A step is of second order in time: it computes the next field from the current and the previous one. A state therefore
has two fields. For P grid points, including absorbing layers, and a star-shaped stencil of order k in space:

- forward: 6k + 8 FLOP for each point, and 5 fields of traffic (it reads two pressures, squared slowness and damping,
  and writes the new pressure);
- backward: the same for the adjoint field, and 4 FLOP and 4 fields to add the correlation to the gradient;
- time step: Courant number x spacing / maximum velocity (0.38 for three dimensions).

The defaults are the SEG/EAGE Overthrust model (Aminzadeh, Brac and Kunz 1997): 801 x 801 x 187 points at 25 m, up to
6,000 m/s. Kukreja et al. 2018 and 2022 checkpoint loops of this model, with 40 absorbing points on each side and 4 s,
which are 2,526 steps.
"""

from __future__ import annotations

from collections.abc import Sequence

from remat.generate import check
from remat.generate.adjoint import Level, time_loop
from remat.generate.check import Number
from remat.generate.devices import DEFAULT
from remat.generate.document import Document
from remat.generate.networks.operations import BYTES, roofline

FIELDS, MORE_FIELDS = 5, 4


def seismic(
    *,
    nx: int = 801,
    ny: int = 801,
    nz: int = 187,
    boundary: int = 40,
    spacing: Number = 25,
    velocity: Number = 6000,
    duration: Number = 4,
    courant: Number = 0.38,
    order: int = 4,
    dtype: str = "fp32",
    storage: str | Sequence[Level] = "",
    initial_state: str = "live",
    flops: float | None = None,
    bandwidth: float | None = None,
    device: str = DEFAULT,
) -> Document:
    """Return the loop of a wave that propagates for some time.

    Parameters
    ----------
    nx, ny, nz : int
        Points of the model.
    boundary : int
        Points of an absorbing layer on each side.
    spacing, velocity, duration : number
        Metres between points, maximum metres per second, and seconds of propagation.
    courant : number
        Time step over spacing / velocity.
    order : int
        Order of the stencil in space.
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
    check.choice("dtype", dtype, tuple(BYTES))
    layer = check.integer("boundary", boundary)
    points = 1
    for name, count in (("nx", nx), ("ny", ny), ("nz", nz)):
        points *= check.integer(name, count, minimum=1) + 2 * layer
    width, fastest = check.number("spacing", spacing, positive=True), check.number("velocity", velocity, positive=True)
    length, share = check.number("duration", duration, positive=True), check.number("courant", courant, positive=True)
    stencil = check.integer("order", order, minimum=2)
    distance, stride = length * fastest, share * width
    if not distance < check.LARGEST_SIZE * stride:
        raise ValueError("duration x velocity / (courant x spacing) is the number of steps; make the duration smaller")
    steps = max(1, int(distance / stride))
    machine, element = roofline(dtype, flops, bandwidth, device), BYTES[dtype]
    check.total([steps * points * element * 4], "make the grid or the duration smaller")
    arithmetic, traffic = (6 * stencil + 8) * points, FIELDS * points * element
    made = time_loop(
        steps=steps,
        forward_time=machine.time(arithmetic, traffic),
        backward_time=machine.time(arithmetic + 4 * points, traffic + MORE_FIELDS * points * element),
        state_size=2 * points * element,
        storage=storage,
        initial_state=initial_state,
        units="si",
    )
    made["name"] = f"seismic_{nx}x{ny}x{nz}_n{steps}_{dtype}"
    made["description"] = (
        f"Acoustic waves on {nx} x {ny} x {nz} points and {layer} absorbing ones on each side, {steps} steps of order "
        f"{stencil} in space, {dtype}; times of a roofline"
    )
    return made

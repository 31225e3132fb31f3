"""`remat.adjoint`: a time loop and its adjoint, from the number of steps or from columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, cast

from remat.building.columns import common_length, listed, rows
from remat.building.common import Column, Common, Rule, build, builder, head
from remat.errors import InstanceError
from remat.instance.native import native
from remat.messages import brief

if TYPE_CHECKING:
    from remat.instance.adjoint import AdjointInstance

_OF_STEPS: tuple[Rule, ...] = ((r"^\$\.steps\[(\d+)\]\.(\w+)", r"\2[\1]"),)


@builder(Common)
def adjoint(
    steps: int | None = None,
    *,
    forward_time: Column = 1,
    backward_time: Column = 1,
    state_size: Column = 1,
    adjoint_size: Column = None,
    tape_size: Column = None,
    tape_time: Column = None,
    storage: Sequence[Mapping[str, Any]] = (),
    initial_state: str = "live",
    **common: Unpack[Common],
) -> AdjointInstance:
    """Build the adjoint of a time loop.

    Parameters
    ----------
    steps : int, optional
        Number of steps; not needed where an argument has an entry for each.
    forward_time, backward_time : column
        Time of each step: an entry for all steps, or a sequence or array with one for each. Default: 1.
    state_size : column
        Bytes of a state. Default: 1.
    adjoint_size : column, optional
        Bytes of an adjoint. Default: as the state.
    tape_size, tape_time : column, optional
        Bytes that the backward of a step needs of its forward, and the time of the forward that records them. Default:
        the backward recomputes them.
    storage : sequence of dict
        Storage levels from fast to slow, as in documents: ``{"name": "ram", "slots": 8}``, or ``{"name": "disk",
        "capacity": "1TB", "bandwidth": "2GB/s"}``, or with `write_time` and `read_time` instead of a bandwidth.
    initial_state : str
        The level that also holds the initial state; ``live`` for none.
    **common
        `time_unit`, `size_unit`, `machine`, `static_memory`, `name`, `description`, `source`.

    Returns
    -------
    AdjointInstance

    Raises
    ------
    remat.InstanceError
        Names the argument, the index and the value.

    Examples
    --------
    >>> import remat
    >>> remat.adjoint(1000, storage=[{"name": "ram", "slots": 10}]).length
    1000
    """
    document = head("adjoint", dict(common)) | {"storage": native(storage), "initial_state": native(initial_state)}
    columns = listed(
        {
            "forward_time": forward_time,
            "backward_time": backward_time,
            "state_size": state_size,
            "adjoint_size": adjoint_size,
            "tape_size": tape_size,
            "tape_time": tape_time,
        }
    )
    each = {key: column for key, column in columns.items() if isinstance(column, list)}
    document |= {key: value for key, value in columns.items() if key not in each}
    count = native(steps)
    if each:
        length = common_length(each, what="steps")
        if count is not None and count != length:
            first = next(iter(each))
            raise InstanceError(f"{brief(count)}, and {first} has {length:,} entries; leave steps out", "steps")
        document["steps"] = rows(each, length)
    elif count is None:
        raise InstanceError("give the number of steps, or a column with an entry for each", "steps")
    else:
        document["steps"] = count
    return cast("AdjointInstance", build(document, _OF_STEPS))

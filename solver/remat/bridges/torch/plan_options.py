"""Options of plans in `remat.torch`, checked by the call that receives them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from remat.bridges.torch.costs import Costs
from remat.errors import OptionError
from remat.messages import brief
from remat.solving.problem_setup import read_seconds
from remat.solving.relative_budget import plain_budget, share_of
from remat.units import parse_bandwidth, parse_budget

TIME_LIMIT = 30.0
"""Seconds of a solve, unless said otherwise."""


@dataclass(frozen=True)
class Choices:
    """Options of a plan.

    Attributes
    ----------
    budget : int, str, sequence of these, or None
        Bytes of the device, all counted; None: recompute nothing. A list has one for each training graph of a step, in
        their order, where the module breaks into several.
    algorithm : str
    options : mapping
        The algorithm's own.
    time_limit : float or str
        Seconds, or ``5min``; they are kept as seconds.
    costs : str, Costs or mapping, optional
        As for `Captured.instance`; ``measure`` measures each operator, with the tensors of the call that is planned.
    optimizer : str, optional
        ``adamw``, ``adamw-fused``, ... (`remat.generate.optimizers`), or a file (`remat.torch.read_optimizer`).
    reserve : int, str or None
        Bytes that plans leave free: by default 1 GiB on a device, 0 on the CPU.
    accumulate : bool
        Count gradients of earlier backward passes, in addition to those of this step. Choose it if gradients exist
        when a step begins: for several backward passes before ``optimizer.step()``, or with
        ``zero_grad(set_to_none=False)``. Only the plan changes; PyTorch adds up gradients in either case.
    plan : path, optional
        A plan file to use instead of solving.
    cache : path, optional
        A folder of plans, by fingerprint, budget and costs, and of measured times of operators.
    host : int or str, optional
        Bytes of the host's memory for results that leave the device and return; none by default.
    link : int, float or str, optional
        Bandwidth between device and host, in each direction (``25GB/s``; a number is in bytes per second); measured by
        default.
    optimizer_memory : {"host"}, optional
        Keep the states of the optimizer at the host, where `remat.torch.host_optimizer` updates the parameters; each
        gradient leaves when it has been made.
    staleness : {0, 1}
        1: the device runs the next step while the host updates.
    host_bandwidth : int, float or str, optional
        Bytes that an update reads and writes at the host per second, as for `link`; measured by default.
    inductor : bool
        Compile the planned graphs with Inductor; otherwise PyTorch's own kernels run them one by one.

    Raises
    ------
    OptionError
        If a size or the limit is invalid. Raised early, because PyTorch's compiler would bury the error in its report.
    """

    budget: int | str | Sequence[int | str] | None = None
    algorithm: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    time_limit: float | str = TIME_LIMIT
    costs: str | Costs | Mapping[str, Any] | None = None
    optimizer: str | None = None
    reserve: int | str | None = None
    accumulate: bool = False
    plan: str | os.PathLike[str] | None = None
    cache: str | os.PathLike[str] | None = None
    host: int | str | None = None
    link: float | str | None = None
    optimizer_memory: str | None = None
    staleness: int = 0
    host_bandwidth: float | str | None = None
    inductor: bool = False

    def __post_init__(self) -> None:
        """Read sizes and the limit; text stays as it was given, for messages, and other numbers become whole ones."""
        budget = self.budget
        if isinstance(budget, Sequence) and not isinstance(budget, (str, bytes)):
            object.__setattr__(self, "budget", [check_budget(one) for one in budget])
        elif budget is not None:
            object.__setattr__(self, "budget", check_budget(budget))
        if self.reserve is not None:
            object.__setattr__(self, "reserve", check_size(self.reserve, "reserve"))
        if self.host is not None:
            if not read_size(self.host, "host"):
                raise OptionError("the host has no memory; leave host out to plan without it", argument="host")
            object.__setattr__(self, "host", check_size(self.host, "host"))
        if self.link is not None:
            if self.host is None:
                raise OptionError("a link needs the memory of a host, such as host='64GB'", argument="link")
            check_rate(self.link)
        self._check_updates()
        object.__setattr__(self, "time_limit", read_seconds(self.time_limit, TIME_LIMIT))

    def _check_updates(self) -> None:
        """Refuse options of updates at the host that do not go together."""
        where = self.optimizer_memory
        if where is None:
            if self.staleness or self.host_bandwidth is not None:
                name = "staleness" if self.staleness else "host_bandwidth"
                raise OptionError("it is for updates at a host: optimizer_memory='host'", argument=name)
            return
        if where != "host":
            raise OptionError(f"expected 'host', not {brief(where)}", argument="optimizer_memory")
        if self.host is None:
            raise OptionError("no memory of a host: give host='64GB'", argument="host")
        if self.optimizer is None:
            raise OptionError("the plan needs the states at the host: optimizer='adamw'", argument="optimizer")
        check_staleness(self.staleness)
        if self.accumulate:
            raise OptionError("gradients of earlier steps are at the host, not on the device", argument="accumulate")
        if self.host_bandwidth is not None:
            check_rate(self.host_bandwidth, "host_bandwidth")

    @property
    def seconds(self) -> float:
        """The limit of a solve."""
        assert isinstance(self.time_limit, (int, float))
        return self.time_limit


def read_size(size: Any, argument: str) -> int:
    """Read a size.

    Raises
    ------
    OptionError
        If it is no size; the error names the argument.
    """
    try:
        return parse_budget(size)
    except ValueError as error:
        raise OptionError(f"{error}", argument=argument) from None


def check_rate(rate: Any, argument: str = "link") -> None:
    """Refuse a bandwidth that cannot be read, or that is 0."""
    try:
        parse_bandwidth(rate)
    except ValueError as error:
        raise OptionError(f"{error}", argument=argument) from None


def check_staleness(staleness: Any) -> int:
    """Return a staleness; refuse any but 0 and 1."""
    if staleness not in (0, 1):
        raise OptionError(f"expected 0 or 1, not {brief(staleness)}", argument="staleness")
    return int(staleness)


def check_size(size: Any, argument: str) -> int | str:
    """Return a size that can be read: text as it is, a number as a whole one."""
    whole = read_size(size, argument)
    return size if isinstance(size, str) else whole


def check_budget(budget: Any) -> int | str:
    """Return one valid budget: a size, or a share such as ``70%``."""
    try:
        budget = plain_budget(budget)
        if share_of(budget) is not None:
            return str(budget)
    except ValueError as error:
        raise OptionError(f"{error}", argument="budget") from None
    return check_size(budget, "budget")


def make_choices(budget: int | str | Sequence[int | str] | None, given: dict[str, Any]) -> Choices:
    """Read the options of `backend` and `compile`."""
    known = Choices.__dataclass_fields__
    for name in given:
        if name not in known:
            raise OptionError(f"there is no such option; known are {', '.join(known)}", argument=name)
    return Choices(budget=budget, **given)

"""`remat.solve_async`: a solve in a thread, for programs that run on asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from remat.errors import OptionError, checked_call
from remat.plugin.cancel import Cancel
from remat.plugin.context import Progress
from remat.solving.budget import Budget
from remat.solving.entry import solve
from remat.solving.problem_setup import AnyInstance, AnyMachine
from remat.solving.result import Result

if TYPE_CHECKING:
    from remat.plugin.registry import Algorithm
    from remat.solving.warm_start import WarmStart


@checked_call(OptionError)
async def solve_async(
    instance: AnyInstance,
    *,
    algorithm: str | Algorithm = "auto",
    budget: Budget = None,
    machine: AnyMachine = None,
    options: Mapping[str, Any] | None = None,
    time_limit: float | str | None = None,
    gap: float | str | None = None,
    patience: float | str | None = None,
    warm_start: WarmStart = None,
    layout: bool = False,
    seed: int = 0,
    threads: int = 1,
    progress: Callable[[Progress], object] | None = None,
    cancel: Cancel | None = None,
) -> Result:
    """Solve an instance in a thread while the event loop continues.

    Parameters, results and exceptions are those of `remat.solve`. `progress` is called in the thread. Cancelling the
    task cancels the solve; the task ends when the thread has stopped. To get the best schedule found, set `cancel`
    instead.

    Returns
    -------
    Result

    Raises
    ------
    asyncio.CancelledError
        If the task is cancelled.
    """
    own = Cancel()
    call = partial(
        solve,
        instance,
        algorithm=algorithm,
        budget=budget,
        machine=machine,
        options=options,
        time_limit=time_limit,
        gap=gap,
        patience=patience,
        warm_start=warm_start,
        layout=layout,
        seed=seed,
        threads=threads,
        progress=progress,
        cancel=own,
    )
    with nullcontext() if cancel is None else cancel.calling(own.set):
        running = asyncio.ensure_future(asyncio.to_thread(call))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            own.set()
            await asyncio.wait([running])
            raise

"""The worker process: one request per line on standard input, one reply per line on the original standard output.

``python -m remat.comparing.worker`` imports the package once and then executes job after job. Output of solvers goes to
standard error. The worker enforces no limits: the parent process does (`supervision`).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TextIO

from remat.comparing.cells import Answer, Outcome
from remat.comparing.processes import adopt_orphans, descendants
from remat.errors import AlgorithmError, ClaimError, RematError

if TYPE_CHECKING:
    from remat.instance import Instance
    from remat.solving.entry import Setup
    from remat.solving.result import Result

MOST_STEPS = 200_000
"""Maximum steps of a schedule with a page in a comparison: about 5 MB; `remat solve` also writes longer ones."""

STARTED = {"started": True}
"""Sent when the instance is loaded: then the time limit starts."""


def describe(source: str, machine: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the facts about an instance that planning needs, on a machine that may replace its own.

    The facts are its digest, kind and units, and the no-recompute peaks of the memory to which a bare budget applies.
    """
    from remat.instance import digest

    instance = _load(source)
    units = instance.units.build()
    return {
        "digest": digest(instance),
        "kind": instance.kind,
        "time_unit": units.time,
        "memory_unit": units.memory,
        "peak": _whole_peak(source, machine),
    }


def _whole_peak(source: str, machine: Mapping[str, Any] | None) -> int | None:
    from remat.plugin.problem import budget_memory

    try:
        setup = _setup(source, machine)
    except RematError:  # the machine is invalid: each solve reports it
        return None
    peaks, problem = setup.wholes.peaks, setup.problem
    return (
        None
        if peaks is None
        else peaks.get(problem.machine.memories[budget_memory(problem.instance, problem.machine)].name)
    )


def answer(request: Mapping[str, Any]) -> Answer:
    """Execute one job; every error is also an answer.

    Parameters
    ----------
    request : mapping
        ``source``, ``algorithm``, ``options``, ``capacity``, ``machine``, ``seed``, ``threads``, ``time_limit``,
        ``gap``, ``patience``, ``picture`` (whether to create one).
    """
    return answer_and_page(request)[0]


def answer_and_page(request: Mapping[str, Any]) -> tuple[Answer, str]:
    """Execute one job as `answer` does, and create the page of its schedule if ``page`` is set; else an empty one."""
    from remat.solving.problem_setup import Control

    started = time.perf_counter()

    def spent() -> float:
        return round(time.perf_counter() - started, 6)

    try:
        instance = _load(request["source"])
        control = Control(
            time_limit=request["time_limit"],
            gap=request.get("gap"),
            patience=request.get("patience"),
            seed=request["seed"],
            threads=request["threads"],
        )
        setup = _setup(request["source"], request["machine"]).asking(request["algorithm"], request["options"])
        result = setup.solve_within(control, request["capacity"])
        found = _answer_of(result, instance, spent())
        if request.get("picture"):
            found = replace(found, picture=_picture(result, instance.kind))
        return found, _page(result) if request.get("page") else ""
    except RematError as error:
        return Answer(outcome=Outcome.REFUSED, detail=str(error), seconds=spent()), ""
    except ClaimError as error:
        return Answer(outcome=Outcome.CLAIM, detail=str(error), seconds=spent()), ""
    except MemoryError as error:
        return Answer(outcome=Outcome.MEMORY_LIMIT, detail=f"out of memory: {error}", seconds=spent()), ""
    except AlgorithmError as error:
        return Answer(outcome=Outcome.CRASHED, detail=str(error), seconds=spent()), ""
    except Exception as error:
        return Answer(outcome=Outcome.CRASHED, detail=f"{type(error).__name__}: {error}", seconds=spent()), ""


def _answer_of(result: Result, instance: Instance, seconds: float) -> Answer:
    from remat.plugin.problem import budget_memory
    from remat.plugin.proposal import ALL_SCHEDULES
    from remat.solving.conclusion import OWN_SOURCES

    least = result.least_budget
    # Budgets of a comparison apply to one memory and cannot satisfy the need of another.
    if least is not None and not (
        instance.budgets_are_for_all or least.memory == budget_memory(instance, result.machine)
    ):
        least = None
    report = result.report
    return Answer(
        outcome=Outcome(str(result.status)),
        detail="; ".join(result.notes),
        makespan=result.makespan,
        no_recompute_time=result.no_recompute_time,
        recompute_time=result.recompute_time,
        overhead=result.overhead,
        lower_bound=result.lower_bound,
        floor=max((bound.value for bound in result.bounds if bound.source in OWN_SOURCES), default=None),
        class_bound=max((bound.value for bound in result.bounds), default=None),
        peak_memory=result.peak_memory,
        transferred={} if report is None else dict(report.transferred),
        optimal_within=result.optimal_within,
        scope=result.scope,
        least_budget=least.size if least is not None and least.sufficient else None,
        least_needed=None if least is None or least.sufficient or least.scope != ALL_SCHEDULES else least.size,
        steps=None if result.columns is None else len(result.columns),
        termination=str(result.termination),
        solve_seconds=round(result.solve_seconds, 6),
        seconds=seconds,
    )


def _picture(result: Result, kind: str) -> str:
    """Return the picture for a report: the schedule ends with the process."""
    if result.report is None:
        return ""
    from remat.report.views.minimap import miniature, pack

    return pack(miniature(result, kind))


def _page(result: Result) -> str:
    """Return the interactive page of a schedule; empty without a schedule, or for a very long one."""
    if result.columns is None or len(result.columns) > MOST_STEPS:
        return ""
    from remat.report.page import page

    return page(result)


def _load(source: str) -> Instance:
    """Load an instance; the last few are cached, because the jobs of one instance follow each other."""
    stat = os.stat(source)
    return _loaded(source, stat.st_mtime_ns, stat.st_size)


def _setup(source: str, machine: Mapping[str, Any] | None) -> Setup:
    """Return an instance on a machine, with all data that jobs of every algorithm and budget share."""
    stat = os.stat(source)
    return _set_up(source, stat.st_mtime_ns, stat.st_size, None if machine is None else json.dumps(dict(machine)))


@lru_cache(maxsize=2)
def _set_up(source: str, modified: int, size: int, machine: str | None) -> Setup:
    from remat.solving.entry import Setup

    instance = _loaded(source, modified, size)
    return Setup.of(instance, "auto", None if machine is None else json.loads(machine), {})


@lru_cache(maxsize=2)
def _loaded(source: str, modified: int, size: int) -> Instance:
    from remat.instance import load

    return load(source)


def _reply(request: Mapping[str, Any], out: TextIO) -> dict[str, Any]:
    page = ""
    try:
        if request["do"] == "describe":
            _send(STARTED, out)
            return {"facts": describe(request["source"], request.get("machine"))}
        _load(request["source"])
    except (RematError, OSError) as error:
        reply = Answer(outcome=Outcome.UNREADABLE, detail=str(error))
    except MemoryError:
        reply = Answer(outcome=Outcome.MEMORY_LIMIT, detail="out of memory while the instance was read")
    except Exception as error:
        reply = Answer(outcome=Outcome.CRASHED, detail=f"{type(error).__name__}: {error}")
    else:
        _send(STARTED, out)
        reply, page = answer_and_page(request)
    return {"answer": reply.to_dict()} | ({"page": page} if page else {})


def _send(document: Mapping[str, Any], out: TextIO) -> None:
    out.write(json.dumps(document) + "\n")
    out.flush()


def _prepare() -> TextIO:
    """Reserve standard output for replies, leave Ctrl-C to the parent, and be the first to be killed without memory."""
    import signal
    import threading
    from contextlib import suppress

    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    adopt_orphans()
    threading.Thread(target=_follow_parent, args=(os.getppid(),), daemon=True).start()
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("500")
    return out


def _follow_parent(parent: int) -> None:
    """End with the parent: a killed parent can neither stop a worker nor enforce its limits."""
    import signal
    from contextlib import suppress

    while os.getppid() == parent:
        time.sleep(1.0)
    for child in descendants(os.getpid()):  # and end the processes that the solver started
        with suppress(OSError):
            os.kill(child, signal.SIGKILL)
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def main() -> None:
    """Serve requests until standard input ends."""
    out = _prepare()
    import_module("remat.solving.entry")  # needed by every job; import it before the first one

    for line in sys.stdin:
        _send(_reply(json.loads(line), out), out)


if __name__ == "__main__":
    main()

"""remat plans the execution of a computation under a memory budget.

This module contains the public interface. Names are imported on first use::

    import remat

    result = remat.solve("gpt2.json", budget="8GB")
    result.makespan, result.peak_memory, result.lower_bound
    report = remat.verify("gpt2.json", "schedule.json")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from remat.plugin import deprecated
from remat.version import __version__ as __version__

deprecated.install()

if TYPE_CHECKING:
    from remat.building.adjoint import adjoint
    from remat.building.chain import chain, join
    from remat.building.dag import dag
    from remat.building.machine import device, machine
    from remat.building.pipeline import pipeline
    from remat.building.tree import tree
    from remat.comparing.comparison import Comparison
    from remat.comparing.run import compare
    from remat.errors import ClaimError, InstanceError, MissingExtraError, OptionError, RematError
    from remat.instance import (
        AdjointInstance,
        ChainInstance,
        DagInstance,
        Instance,
        JoinInstance,
        PipelineInstance,
        TreeInstance,
        load,
    )
    from remat.instance.shipped import example, examples
    from remat.plugin.cancel import Cancel
    from remat.plugin.context import Progress
    from remat.plugin.proposal import Bound, LeastBudget, Status, Termination
    from remat.plugin.registry import Algorithm, algorithms
    from remat.schedule.document import Copy, Drop, Run
    from remat.solving.asynchronous import solve_async
    from remat.solving.decisions.stages import StageDecision, StageDecisions
    from remat.solving.decisions.values import Decision, Decisions
    from remat.solving.entry import solve
    from remat.solving.external_schedule import schedule_of
    from remat.solving.facts import Facts, show
    from remat.solving.questions.curves import Curve, Point, Sweep
    from remat.solving.questions.largest_batch import largest_batch
    from remat.solving.questions.layout import Addresses, layout
    from remat.solving.questions.least_budget import least_budget
    from remat.solving.questions.plan import Planned, plan
    from remat.solving.questions.prepared import Prepared, prepare
    from remat.solving.questions.sweep import sweep
    from remat.solving.result import Result
    from remat.solving.verifying import verify
    from remat.time_loops.streaming import Stream, stream
    from remat.verifier import Report, Violation

_HOME = {
    "Addresses": "remat.solving.questions.layout",
    "AdjointInstance": "remat.instance",
    "Algorithm": "remat.plugin.registry",
    "Bound": "remat.plugin.proposal",
    "Cancel": "remat.plugin.cancel",
    "ChainInstance": "remat.instance",
    "ClaimError": "remat.errors",
    "Comparison": "remat.comparing.comparison",
    "Copy": "remat.schedule.document",
    "Curve": "remat.solving.questions.curves",
    "DagInstance": "remat.instance",
    "Decision": "remat.solving.decisions.values",
    "Decisions": "remat.solving.decisions.values",
    "Drop": "remat.schedule.document",
    "Facts": "remat.solving.facts",
    "Instance": "remat.instance",
    "InstanceError": "remat.errors",
    "JoinInstance": "remat.instance",
    "LeastBudget": "remat.plugin.proposal",
    "MissingExtraError": "remat.errors",
    "OptionError": "remat.errors",
    "PipelineInstance": "remat.instance",
    "Planned": "remat.solving.questions.plan",
    "Point": "remat.solving.questions.curves",
    "Prepared": "remat.solving.questions.prepared",
    "Progress": "remat.plugin.context",
    "RematError": "remat.errors",
    "Report": "remat.verifier",
    "Result": "remat.solving.result",
    "Run": "remat.schedule.document",
    "StageDecision": "remat.solving.decisions.stages",
    "StageDecisions": "remat.solving.decisions.stages",
    "Status": "remat.plugin.proposal",
    "Sweep": "remat.solving.questions.curves",
    "Stream": "remat.time_loops.streaming",
    "Termination": "remat.plugin.proposal",
    "TreeInstance": "remat.instance",
    "Violation": "remat.verifier",
    "adjoint": "remat.building.adjoint",
    "algorithms": "remat.plugin.registry",
    "chain": "remat.building.chain",
    "compare": "remat.comparing.run",
    "dag": "remat.building.dag",
    "device": "remat.building.machine",
    "join": "remat.building.chain",
    "machine": "remat.building.machine",
    "pipeline": "remat.building.pipeline",
    "tree": "remat.building.tree",
    "largest_batch": "remat.solving.questions.largest_batch",
    "least_budget": "remat.solving.questions.least_budget",
    "example": "remat.instance.shipped",
    "examples": "remat.instance.shipped",
    "layout": "remat.solving.questions.layout",
    "load": "remat.instance",
    "plan": "remat.solving.questions.plan",
    "prepare": "remat.solving.questions.prepared",
    "schedule_of": "remat.solving.external_schedule",
    "show": "remat.solving.facts",
    "solve": "remat.solving.entry",
    "solve_async": "remat.solving.asynchronous",
    "sweep": "remat.solving.questions.sweep",
    "stream": "remat.time_loops.streaming",
    "verify": "remat.solving.verifying",
}

__all__ = [
    "Addresses",
    "AdjointInstance",
    "Algorithm",
    "Bound",
    "Cancel",
    "ChainInstance",
    "ClaimError",
    "Comparison",
    "Copy",
    "Curve",
    "DagInstance",
    "Decision",
    "Decisions",
    "Drop",
    "Facts",
    "Instance",
    "InstanceError",
    "JoinInstance",
    "LeastBudget",
    "MissingExtraError",
    "OptionError",
    "PipelineInstance",
    "Planned",
    "Point",
    "Prepared",
    "Progress",
    "RematError",
    "Report",
    "Result",
    "Run",
    "StageDecision",
    "StageDecisions",
    "Status",
    "Stream",
    "Sweep",
    "Termination",
    "TreeInstance",
    "Violation",
    "adjoint",
    "algorithms",
    "chain",
    "compare",
    "dag",
    "device",
    "example",
    "examples",
    "join",
    "largest_batch",
    "layout",
    "least_budget",
    "load",
    "machine",
    "pipeline",
    "plan",
    "prepare",
    "schedule_of",
    "show",
    "solve",
    "solve_async",
    "stream",
    "sweep",
    "tree",
    "verify",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'remat' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    if name == "adjoint":
        value.run = _run_time_loop
    globals()[name] = value
    return value


def _run_time_loop(*arguments: Any, **options: Any) -> Any:
    """Run a time loop and its adjoint according to a plan: `remat.time_loops.run`."""
    return import_module("remat.time_loops").run(*arguments, **options)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])

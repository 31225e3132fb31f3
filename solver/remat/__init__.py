"""remat plans the execution of a computation under a memory budget.

Everything public is here, and imported when it is first used::

    import remat

    result = remat.solve("gpt2.json", budget="8GB")
    result.makespan, result.peak_memory, result.lower_bound
    report = remat.verify("gpt2.json", "schedule.json")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from remat.errors import ClaimError, InstanceError, MissingExtraError, OptionError, RematError
    from remat.facts import Facts, show
    from remat.instance import AdjointInstance, ChainInstance, DagInstance, Instance, TreeInstance, load
    from remat.problem import Bound, LeastBudget, Status, Termination
    from remat.registry import Algorithm, algorithms
    from remat.result import Result
    from remat.shipped import example, examples
    from remat.solving import solve
    from remat.streaming import Stream, stream
    from remat.verifier import Report, Violation
    from remat.verifying import verify

_HOME = {
    "AdjointInstance": "remat.instance",
    "Algorithm": "remat.registry",
    "Bound": "remat.problem",
    "ChainInstance": "remat.instance",
    "ClaimError": "remat.errors",
    "DagInstance": "remat.instance",
    "Facts": "remat.facts",
    "Instance": "remat.instance",
    "InstanceError": "remat.errors",
    "LeastBudget": "remat.problem",
    "MissingExtraError": "remat.errors",
    "OptionError": "remat.errors",
    "RematError": "remat.errors",
    "Report": "remat.verifier",
    "Result": "remat.result",
    "Status": "remat.problem",
    "Stream": "remat.streaming",
    "Termination": "remat.problem",
    "TreeInstance": "remat.instance",
    "Violation": "remat.verifier",
    "algorithms": "remat.registry",
    "example": "remat.shipped",
    "examples": "remat.shipped",
    "load": "remat.instance",
    "show": "remat.facts",
    "solve": "remat.solving",
    "stream": "remat.streaming",
    "verify": "remat.verifying",
}

__all__ = [
    "AdjointInstance",
    "Algorithm",
    "Bound",
    "ChainInstance",
    "ClaimError",
    "DagInstance",
    "Facts",
    "Instance",
    "InstanceError",
    "LeastBudget",
    "MissingExtraError",
    "OptionError",
    "RematError",
    "Report",
    "Result",
    "Status",
    "Stream",
    "Termination",
    "TreeInstance",
    "Violation",
    "algorithms",
    "example",
    "examples",
    "load",
    "show",
    "solve",
    "stream",
    "verify",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'remat' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})

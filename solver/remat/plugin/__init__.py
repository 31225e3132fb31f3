"""The contract: everything that the author of an algorithm imports, and the registry that finds algorithms.

An algorithm is a function ``solve(problem, options, context) -> Proposal`` and a line of metadata, `Algorithm`, in a
catalogue.

`Problem`
    The instance on its machine, with the budgets applied. `Problem.graph` is the task graph to which every kind of
    instance is lowered. `Problem.chain` returns the arrays of a chain or an adjoint. Bounds, needed tasks and the
    no-recompute time are computed on first use and cached.
`Options`
    Base of the algorithm's options, a frozen pydantic model. An algorithm without options receives None.
`Context`
    Deadline, seed and threads. An anytime algorithm reports its incumbents and checks `Context.stopped` regularly.
`Buffers`, `LayoutProposal`
    For the family `layout`, whose functions are ``solve(buffers, options, context) -> LayoutProposal``: lifetimes in
    one memory, and their addresses.
`Proposal`
    The result: ordered steps, usually without start times, and claims (makespan, peak, bounds, scopes). The core
    places the steps and verifies every claim. If nothing fits, this is an answer and not an exception: no steps, with
    `Proposal.infeasible_within` and `Proposal.least` if they are known. `OptionError` is for unusable input.

Sizes are exact integers in bytes (or the instance's unit); times are integers or floats in the instance's unit. Tasks,
values and memories are indices into the graph and the machine.

Notes
-----
Names are imported on first use, so that catalogues load quickly. The modules of this package define them; authors
import them from `remat.plugin`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remat.errors import InstanceError, MissingLinkError, OptionError
    from remat.graph.bounds import NeededTasks, makespan_bound, needed_tasks, total_time
    from remat.graph.chain import Chain, Variants
    from remat.graph.machine import Link, Machine, Memory, Processor
    from remat.graph.names import Names
    from remat.graph.samples import Samples
    from remat.graph.taskgraph import (
        BoolArray,
        IntArray,
        NumberArray,
        Ragged,
        Resident,
        TaskGraph,
        instant_array,
        number_array,
    )
    from remat.instance import AdjointInstance, ChainInstance, DagInstance, Layer, PipelineInstance, TreeInstance
    from remat.plugin.applicability import check_reach
    from remat.plugin.context import Context, Progress
    from remat.plugin.emit import MOST_RUNS, check_length, run_in_order, unread_tasks, useful_places, useful_runs
    from remat.plugin.layouts import FREE, THIS_SCHEDULE, Buffers, LayoutProposal, arena_of
    from remat.plugin.options import Options, make_options
    from remat.plugin.problem import Problem
    from remat.plugin.proposal import (
        ALL_SCHEDULES,
        LAYERS_WHOLE,
        PARAMETERS_STAY,
        Bound,
        LeastBudget,
        Proposal,
        Status,
        Termination,
    )
    from remat.plugin.registry import Algorithm, Trial
    from remat.plugin.topological_order import in_listed_order, reference_order
    from remat.schedule.modulo import ModuloSchedule, Turn
    from remat.schedule.operations import Entry, Layout, Operation, entry_array, expand, expanded, task_sequence
    from remat.schedule.orders import Orders, Pass, Phase, Stage, degrees_of, initial_of, tasks_of
    from remat.schedule.patterns import Beat, Pattern
    from remat.schedule.recompute import Segment
    from remat.schedule.step_end import plan_of
    from remat.schedule.steps import WHOLE, StepBuilder, StepKind, Steps, concatenate
    from remat.units import Number, format_size, format_time

_HOME = {
    "ALL_SCHEDULES": "remat.plugin.proposal",
    "AdjointInstance": "remat.instance",
    "Algorithm": "remat.plugin.registry",
    "Beat": "remat.schedule.patterns",
    "BoolArray": "remat.graph.taskgraph",
    "Bound": "remat.plugin.proposal",
    "Buffers": "remat.plugin.layouts",
    "Chain": "remat.graph.chain",
    "ChainInstance": "remat.instance",
    "Context": "remat.plugin.context",
    "DagInstance": "remat.instance",
    "Entry": "remat.schedule.operations",
    "FREE": "remat.plugin.layouts",
    "InstanceError": "remat.errors",
    "IntArray": "remat.graph.taskgraph",
    "LAYERS_WHOLE": "remat.plugin.proposal",
    "Layer": "remat.instance",
    "Layout": "remat.schedule.operations",
    "LayoutProposal": "remat.plugin.layouts",
    "LeastBudget": "remat.plugin.proposal",
    "Link": "remat.graph.machine",
    "MOST_RUNS": "remat.plugin.emit",
    "Machine": "remat.graph.machine",
    "Memory": "remat.graph.machine",
    "ModuloSchedule": "remat.schedule.modulo",
    "Names": "remat.graph.names",
    "NeededTasks": "remat.graph.bounds",
    "Number": "remat.units",
    "NumberArray": "remat.graph.taskgraph",
    "Operation": "remat.schedule.operations",
    "MissingLinkError": "remat.errors",
    "OptionError": "remat.errors",
    "Options": "remat.plugin.options",
    "Orders": "remat.schedule.orders",
    "Pass": "remat.schedule.orders",
    "Pattern": "remat.schedule.patterns",
    "PARAMETERS_STAY": "remat.plugin.proposal",
    "Phase": "remat.schedule.orders",
    "PipelineInstance": "remat.instance",
    "Problem": "remat.plugin.problem",
    "Processor": "remat.graph.machine",
    "Progress": "remat.plugin.context",
    "Proposal": "remat.plugin.proposal",
    "Ragged": "remat.graph.taskgraph",
    "Resident": "remat.graph.taskgraph",
    "Samples": "remat.graph.samples",
    "Segment": "remat.schedule.recompute",
    "Stage": "remat.schedule.orders",
    "Status": "remat.plugin.proposal",
    "StepBuilder": "remat.schedule.steps",
    "StepKind": "remat.schedule.steps",
    "Steps": "remat.schedule.steps",
    "THIS_SCHEDULE": "remat.plugin.layouts",
    "TaskGraph": "remat.graph.taskgraph",
    "Termination": "remat.plugin.proposal",
    "TreeInstance": "remat.instance",
    "Trial": "remat.plugin.registry",
    "Turn": "remat.schedule.modulo",
    "Variants": "remat.graph.chain",
    "WHOLE": "remat.schedule.steps",
    "arena_of": "remat.plugin.layouts",
    "check_length": "remat.plugin.emit",
    "check_reach": "remat.plugin.applicability",
    "concatenate": "remat.schedule.steps",
    "degrees_of": "remat.schedule.orders",
    "entry_array": "remat.schedule.operations",
    "expand": "remat.schedule.operations",
    "expanded": "remat.schedule.operations",
    "format_size": "remat.units",
    "format_time": "remat.units",
    "initial_of": "remat.schedule.orders",
    "make_options": "remat.plugin.options",
    "makespan_bound": "remat.graph.bounds",
    "needed_tasks": "remat.graph.bounds",
    "instant_array": "remat.graph.taskgraph",
    "number_array": "remat.graph.taskgraph",
    "plan_of": "remat.schedule.step_end",
    "reference_order": "remat.plugin.topological_order",
    "in_listed_order": "remat.plugin.topological_order",
    "total_time": "remat.graph.bounds",
    "run_in_order": "remat.plugin.emit",
    "unread_tasks": "remat.plugin.emit",
    "useful_places": "remat.plugin.emit",
    "useful_runs": "remat.plugin.emit",
    "task_sequence": "remat.schedule.operations",
    "tasks_of": "remat.schedule.orders",
}

__all__ = [
    "ALL_SCHEDULES",
    "FREE",
    "LAYERS_WHOLE",
    "MOST_RUNS",
    "PARAMETERS_STAY",
    "THIS_SCHEDULE",
    "WHOLE",
    "AdjointInstance",
    "Algorithm",
    "Beat",
    "BoolArray",
    "Bound",
    "Buffers",
    "Chain",
    "ChainInstance",
    "Context",
    "DagInstance",
    "Entry",
    "InstanceError",
    "IntArray",
    "Layer",
    "Layout",
    "LayoutProposal",
    "LeastBudget",
    "Link",
    "Machine",
    "Memory",
    "MissingLinkError",
    "ModuloSchedule",
    "Names",
    "NeededTasks",
    "Number",
    "NumberArray",
    "Operation",
    "OptionError",
    "Options",
    "Orders",
    "Pass",
    "Pattern",
    "Phase",
    "PipelineInstance",
    "Problem",
    "Processor",
    "Progress",
    "Proposal",
    "Ragged",
    "Resident",
    "Samples",
    "Segment",
    "Stage",
    "Status",
    "StepBuilder",
    "StepKind",
    "Steps",
    "TaskGraph",
    "Termination",
    "TreeInstance",
    "Trial",
    "Turn",
    "Variants",
    "arena_of",
    "check_length",
    "check_reach",
    "concatenate",
    "degrees_of",
    "entry_array",
    "expand",
    "expanded",
    "format_size",
    "format_time",
    "in_listed_order",
    "initial_of",
    "instant_array",
    "make_options",
    "makespan_bound",
    "needed_tasks",
    "number_array",
    "plan_of",
    "reference_order",
    "run_in_order",
    "task_sequence",
    "tasks_of",
    "total_time",
    "unread_tasks",
    "useful_places",
    "useful_runs",
]


_RENAMED = {"SamplePattern": "ModuloSchedule"}
"""Old names, which warn for one release."""


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        import warnings

        text = f"remat.plugin.{name} is now remat.plugin.{_RENAMED[name]}"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return __getattr__(_RENAMED[name])
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'remat.plugin' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

"""Training steps of several graphs with one budget, and the order of each graph.

If a module breaks into several graphs, PyTorch compiles each graph at its first call. Saved values of earlier graphs
stay until their backwards. In the first step each graph therefore runs in the order with the smallest peak. After this
step the calls are known, and one task graph holds them all:

- the forwards run one after the other, then the backwards in reverse;
- no task of a graph runs between its forward and its backward;
- its tangents are available when the backward of the next graph has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from remat.bridges.torch.capture import Captured
from remat.bridges.torch.document import instance_document
from remat.bridges.torch.joint import BOUNDARY
from remat.bridges.torch.operator_timing import costs_of
from remat.bridges.torch.optimizers import Trained, read_optimizer
from remat.bridges.torch.orders import Key, Orders, Runs
from remat.bridges.torch.plan_options import Choices
from remat.bridges.torch.planning import Plan, TooSmallError, reserve_of
from remat.bridges.torch.recording import Role, TorchError
from remat.bridges.torch.shim import StorageWeakRef, torch
from remat.bridges.torch.surroundings import Observed
from remat.errors import RematError
from remat.instance import load
from remat.schedule.document import Run
from remat.solving.entry import solve
from remat.solving.external_schedule import schedule_of
from remat.solving.relative_budget import share_of
from remat.solving.result import Result
from remat.units import format_budget, format_size, parse_budget

END = "@end"
OUTSIDE = "@outside"
MOST_SEQUENCES = 8
"""Sequences of calls that are planned; a step with another one runs with the smallest peaks."""


@dataclass
class Call:
    """One call of a training graph in a step.

    Attributes
    ----------
    orders : Orders
    key : tuple of int
        Its sizes.
    captured : Captured
    given : list of (int, int) or None
        For each argument, the identity of its storage and its bytes; None for a size.
    made : set of int
        Storages that it returned.
    held : int
        Bytes that it returned or saved.
    token : weak reference or None
        A storage that lives until the backward has run.
    """

    orders: Orders
    key: Key
    captured: Captured
    given: list[tuple[int, int] | None]
    made: set[int] = field(default_factory=set)
    held: int = 0
    token: Any = None
    references: list[Any] = field(default_factory=list)

    @property
    def name(self) -> tuple[int, Key]:
        """Properties that the next step has in common."""
        return id(self.orders), self.key

    @property
    def pending(self) -> bool:
        """Whether its backward is to come."""
        return self.token is not None and not self.token.expired()


def weak(tensor: Any) -> Any:
    """Return a weak reference to a storage; while it exists, no other storage has its identity."""
    return StorageWeakRef(tensor.untyped_storage())


class Step:
    """Follows the calls of a step, and knows the orders of steps like it."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.known: dict[tuple[tuple[int, Key], ...], Sequence[Runs]] = {}

    def begin(self) -> list[Call]:
        """Return the calls of the last step if a new one begins: no backward is to come."""
        if any(call.pending for call in self.calls):
            return []
        last, self.calls = self.calls, []
        return last

    def add(self, orders: Orders, key: Key, arguments: list[Any]) -> Call:
        """Note a call."""
        call = Call(orders, key, orders.sized(key, arguments), [])
        for argument in arguments:
            if not isinstance(argument, torch.Tensor):
                call.given.append(None)
                continue
            reference = weak(argument)
            call.references.append(reference)
            call.given.append((reference.cdata, argument.untyped_storage().nbytes()))
        self.calls.append(call)
        return call

    def leave(self, outputs: tuple[Any, ...], token: Any) -> None:
        """Record the results and saved tensors of the latest call."""
        call = self.calls[-1]
        seen = {entry[0] for entry in call.given if entry is not None}
        for place, tensor in enumerate(outputs):
            if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided:
                reference = weak(tensor)
                call.references.append(reference)
                if place < call.orders.outputs:
                    call.made.add(reference.cdata)
                if reference.cdata not in seen:
                    seen.add(reference.cdata)
                    call.held += tensor.untyped_storage().nbytes()
        call.token = weak(token)

    def number_of(self, token: Any) -> int:
        """Return the place of the call whose backward takes a token."""
        key = token.untyped_storage()._cdata
        return next(
            place for place, call in enumerate(self.calls) if call.token is not None and call.token.cdata == key
        )

    def planned(self) -> Runs | None:
        """Return the order of the latest call, if a known step begins like this one."""
        names = tuple(call.name for call in self.calls)
        for sequence, runs in reversed(self.known.items()):
            if sequence[: len(names)] == names:
                return runs[len(names) - 1]
        return None

    def check(self, peak: int, choices: Choices, where: str) -> None:
        """Refuse a graph whose smallest peak and the bytes held by earlier graphs exceed the budget."""
        if not isinstance(choices.budget, (int, str)) or share_of(choices.budget) is not None:
            return
        held = sum(call.held for call in self.calls[:-1] if call.pending)
        fixed = sum(fixed_of(self.calls, choices).values())
        if peak + held + fixed > parse_budget(choices.budget):
            raise TooSmallError(
                f"no schedule found within {choices.budget}: graph {len(self.calls)} of the step{where} needs "
                f"{format_budget(peak)}, and {format_size(fixed)} are fixed, {format_size(held)} saved by earlier "
                "graphs",
                proved=False,
            )


def fixed_of(calls: Sequence[Call], choices: Choices, observed: Observed | None = None) -> dict[str, int]:
    """Split the bytes that stay in memory during a whole step; each storage counts once.

    For a sharded module, these include the parameters that the rank holds.
    """
    names = {"parameter": "parameters", "buffer": "buffers"}
    split = {"parameters": 0, "buffers": 0, "inputs": 0, "constants": 0}
    seen: set[int] = set()
    trained: list[Trained] = []
    if observed is not None:
        split["parameters"], trained = observed.parameters, list(observed.trained)
    for number, call in enumerate(calls):
        joint = call.captured.joint
        gradients = {place: values for place, _, values in joint.gradients()}
        inputs = [node for node in call.captured.recording.nodes if node.role is Role.INPUT]
        for place, (node, entry) in enumerate(zip(inputs, call.given, strict=True)):
            outside = observed is not None and (number, place) in observed.foreign
            if entry is None or entry[0] in seen or outside:
                continue
            seen.add(entry[0])
            split[names.get(node.operator, "inputs")] += entry[1]
            held = node.tensors[0]
            if observed is None and node.operator == "parameter" and place in gradients and held is not None:
                trained.append(Trained(entry[1], held.shape))
        seen |= call.made
    for orders in {id(call.orders): call for call in calls}.values():
        split["constants"] += orders.captured.static_bytes()["constant"]
    split["optimizer"] = read_optimizer(choices.optimizer).state_bytes(trained)
    split["accumulated"] = sum(tensor.size for tensor in trained) if choices.accumulate else 0
    split["reserve"] = max(reserve_of(call.captured, choices) for call in calls)
    return split


class Composition:
    """The calls of a step as one instance; task and value names begin with the number of their call.

    For a sharded module, tasks ``0.@outside``, ``1.@outside``... stand for what happens between the graphs.
    """

    def __init__(self, calls: Sequence[Call], choices: Choices, observed: Observed | None = None) -> None:
        self.calls = calls
        self.observed = observed
        self.split = fixed_of(calls, choices, observed)
        self.documents = [
            instance_document(call.captured.joint, costs_of(call.captured, choices.costs, choices.cache))
            for call in calls
        ]
        self.tasks: list[dict[str, Any]] = []
        self.values: list[dict[str, Any]] = []
        self.outputs: list[str] = []
        self._build()
        static = sum(self.split.values()) - self.split["reserve"]
        whole = {"values": self.values, "tasks": self.tasks, "outputs": self.outputs, "static_memory": static}
        self.instance = load(self.documents[0] | whole)

    @cached_property
    def kept(self) -> Result:
        """The schedule without recomputation."""
        result = self.verified([call.captured.joint.keep_all for call in self.calls])
        assert result is not None
        return result

    def _producer(self, number: int, place: int) -> int:
        """Return the call that made an argument of a call; by default the previous call."""
        entry = self.calls[number].given[place]
        made = (k for k in range(number) if entry is not None and entry[0] in self.calls[k].made)
        return next(made, number - 1)

    def _outside(self, gone: dict[tuple[int, str], int]) -> list[dict[str, Any]]:
        """Return the tasks between the graphs, in order, with the values that live outside the graphs.

        `gone` has the interval in which each gradient and result that does not stay is freed.
        """
        if self.observed is None:
            return []
        last, count = len(self.calls), len(self.observed.intervals)
        tasks: list[dict[str, Any]] = [
            {"id": f"{number}.{OUTSIDE}", "time": 0, "reads": [], "writes": [f"{number}.{OUTSIDE}"], "once": True}
            for number in range(count)
        ]
        for number, task in enumerate(tasks):
            self.values.append({"id": f"{number}.{OUTSIDE}", "size": 0})
            task["workspace"] = self.observed.workspace(number)
            if number:
                task["reads"].append(f"{number - 1}.{OUTSIDE}")
            if 0 < number <= last:
                task["reads"].append(f"{number - 1}.{END}")
            elif number > last:  # after the backward of a call
                call = 2 * last - number
                values = (value for _, _, found in self.calls[call].captured.joint.gradients() for value in found)
                task["reads"] += [f"{call}.{value}" for value in values]
                task["reads"].append(f"{call}.{BOUNDARY}")
        for index, (size, begin, end) in enumerate(self.observed.bars()):
            name = f"{begin}.{OUTSIDE}.{index}"
            self.values.append({"id": name, "size": size})
            tasks[begin]["writes"].append(name)
            if end < count:
                tasks[end]["reads"].append(name)
            else:
                self.outputs.append(name)
        for (call, value), number in gone.items():
            tasks[number]["reads"].append(f"{call}.{value}")
        for task in tasks:
            task["reads"] = list(dict.fromkeys(task["reads"]))
        return tasks

    def _ends(self) -> dict[tuple[int, str], int]:
        """Return the interval in which each gradient and result that does not stay is freed.

        A result that a later call takes stays until the backward of that call, which may have saved it.
        """
        found: dict[tuple[int, str], int] = {}
        if self.observed is None:
            return found
        for number, call in enumerate(self.calls):
            joint = call.captured.joint
            gradients = ((place, values) for place, _, values in joint.gradients())
            both = ((self.observed.ends, gradients), (self.observed.outputs, joint.outputs()))
            for ends, kind in both:
                for place, values in kind:
                    for value in values if (number, place) in ends else ():
                        found[number, value] = max(found.get((number, value), 0), ends[number, place])
            for place, values in joint.outputs():
                if (number, place) not in self.observed.outputs:  # it stays
                    for value in values:
                        found.pop((number, value), None)
            taken = min((k for k in range(number + 1, len(self.calls)) if self._takes(k, call.made)), default=None)
            if taken is not None:
                last = 2 * len(self.calls) - taken
                for value in joint.returned:
                    if (number, value) in found:
                        found[number, value] = max(found[number, value], last)
        return found

    def _takes(self, number: int, made: set[int]) -> bool:
        """Whether a call takes one of these storages."""
        return any(entry is not None and entry[0] in made for entry in self.calls[number].given)

    def _build(self) -> None:
        turns: list[list[str]] = [[] for _ in self.calls]  # what must be there before the tangents of each call
        gone = self._ends()
        for number, call in enumerate(self.calls):
            joint = call.captured.joint
            kept = dict.fromkeys(joint.kept)
            for value in [value for value in kept if (number, value) in gone]:
                del kept[value]
            for place, node, values in joint.gradients():
                if number and self.observed is None:
                    turns[number - 1] += [f"{number}.{value}" for value in values]
                if number and node.operator != "parameter":
                    turns[self._producer(number, place)] += [f"{number}.{value}" for value in values]
                    for value in values:
                        kept.pop(value, None)
            self.outputs += [f"{number}.{value}" for value in kept]
        between = self._outside(gone)
        last = len(self.calls)
        backwards: list[list[dict[str, Any]]] = []
        for number, document in enumerate(self.documents):
            end = f"{number}.{END}"
            self.values += [value | {"id": f"{number}.{value['id']}"} for value in document["values"]]
            self.values.append({"id": end, "size": 0})
            named = [self._named(number, task) for task in document["tasks"]]
            turn = next(place for place, task in enumerate(named) if task["id"] == f"{number}.{BOUNDARY}")
            boundary = named[turn]
            if between:
                self.tasks.append(between[number])
                turns[number].append(f"{2 * last - 1 - number}.{OUTSIDE}")
                boundary["writes"].append(f"{number}.{BOUNDARY}")
                self.values.append({"id": f"{number}.{BOUNDARY}", "size": 0})
            self.tasks += named[:turn]
            self.tasks.append({"id": end, "time": 0, "reads": boundary["reads"], "writes": [end], "once": True})
            boundary["reads"] = list(dict.fromkeys((*boundary["reads"], end, *turns[number])))
            backwards.append(named[turn:])
        for number, tasks in enumerate(reversed(backwards), last):
            self.tasks += between[number : number + 1] + tasks
        self.tasks += between[2 * last :]

    def _named(self, number: int, task: dict[str, Any]) -> dict[str, Any]:
        reads = [f"{number}.{value}" for value in task["reads"]]
        if not reads and self.observed is not None:
            reads = [f"{number}.{OUTSIDE}"]
        elif number and not reads:
            reads = [f"{number - 1}.{END}"]
        writes = [f"{number}.{value}" for value in task["writes"]]
        return task | {"id": f"{number}.{task['id']}", "reads": reads, "writes": writes}

    def split_runs(self, names: Sequence[str]) -> list[Runs]:
        """Return the runs of each call, those between its forward and its backward at the begin of the latter."""
        forward: list[list[str]] = [[] for _ in self.calls]
        backward: list[list[str]] = [[] for _ in self.calls]
        ended: set[int] = set()
        for name in names:
            number, _, task = name.partition(".")
            if task == END:
                ended.add(int(number))
            elif task not in (BOUNDARY, OUTSIDE):
                (backward if int(number) in ended else forward)[int(number)].append(task)
        return [(*one, BOUNDARY, *two) for one, two in zip(forward, backward, strict=True)]

    def verified(self, runs: Sequence[Runs]) -> Result | None:
        """Return the schedule of these runs of each call; None if they are no schedule."""
        order: list[str] = []
        later: list[list[str]] = []
        between = [] if self.observed is None else [f"{n}.{OUTSIDE}" for n in range(len(self.observed.intervals))]
        for number, names in enumerate(runs):
            turn = names.index(BOUNDARY)
            order += between[number : number + 1]
            order += [f"{number}.{name}" for name in (*names[:turn], END)]
            later.append([f"{number}.{name}" for name in names[turn:]])
        for number, names_of_call in enumerate(reversed(later), len(runs)):
            order += between[number : number + 1] + names_of_call
        order += between[2 * len(runs) :]
        try:
            return schedule_of(self.instance, order)
        except RematError:
            return None

    def plan(self, runs: Sequence[Runs]) -> tuple[Plan, Sequence[Runs]]:
        """Return the plan with these runs of each call."""
        result = self.verified(runs)
        if result is None:
            raise TorchError("the order of the first rank is not a schedule on this one; give all ranks the same sizes")
        fingerprint = " ".join(call.captured.fingerprint for call in self.calls)
        counted = sum(self.split.values()) - self.split["reserve"]
        peak = result.peak_memory["memory"]
        names = tuple(step.task for step in result.steps if isinstance(step, Run))
        split = {**self.split, "activations": peak - counted}
        overhead = float(result.overhead or 0.0)
        return Plan(fingerprint, result.to_dict(), names, split, peak, overhead, "solved"), runs


def plan_step(whole: Composition, least: Sequence[Runs], choices: Choices, largest: int) -> tuple[Plan, Sequence[Runs]]:
    """Plan all calls of a step within one budget.

    Parameters
    ----------
    whole : Composition
    least : sequence of runs
        For each call an order with a small peak.
    choices : Choices
    largest : int
        The peak to which a relative budget refers.

    Returns
    -------
    Plan
        The plan of the whole step.
    sequence of runs
        The runs of each call.
    """
    calls, kept = whole.calls, whole.kept
    candidates: list[Sequence[Runs]] = [[call.captured.joint.keep_all for call in calls]]
    share = share_of(choices.budget)
    reserve = whole.split["reserve"]
    most = int(share * largest) if share else parse_budget(choices.budget) - reserve
    if kept.peak_memory["memory"] > most:
        found = solve(
            whole.instance,
            algorithm=choices.algorithm,
            budget=most,
            options=choices.options,
            time_limit=choices.seconds,
        )
        candidates = [least]
        if found.columns is not None:
            candidates.append(whole.split_runs([step.task for step in found.steps if isinstance(step, Run)]))
    results = [(result, runs) for runs in candidates if (result := whole.verified(runs)) is not None]
    fitting = [(result, runs) for result, runs in results if result.peak_memory["memory"] <= most]
    if not fitting:
        smallest = min(result.peak_memory["memory"] for result, _ in results)
        fixed = ", ".join(f"{format_size(size)} {name}" for name, size in whole.split.items() if size)
        raise TooSmallError(
            f"no schedule found within {choices.budget}: the {len(calls)} graphs of the step need "
            f"{format_size(smallest + reserve, both=True)} together; of it {fixed}",
            proved=False,
        )
    _, runs = min(fitting, key=lambda one: one[0].makespan or 0)
    return whole.plan(runs)


__all__ = ["Call", "Composition", "Step", "plan_step"]

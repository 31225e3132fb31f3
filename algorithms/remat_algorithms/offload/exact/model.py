"""The constraint program of `offload-exact`: start times for the possible acts."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from remat_algorithms.offload.exact.decision_space import Plan, Setting
from remat_algorithms.offload.exact.integer_scaling import Scale


class Model:
    """The program: `setting` with times, in the units of `scale`.

    Parameters
    ----------
    setting, scale
    most : int
        Upper limit of the makespan, in units. Smaller limits let the solver finish sooner.

    Attributes
    ----------
    whole : bool
        Whether the horizon is long enough for every schedule of the class.

    Notes
    -----
    Each act is an optional interval on its resource (`no-overlap`). Each slot is an interval for its value in its
    memory, from the start of its producer to a free instant. Slots of one value in one memory do not overlap, so a
    value is never produced while it is resident. A slot is complete at its producer's end. Every act that reads a value
    picks one slot:

        ready(slot) <= start(act),  end(act) <= free(slot).

    Bytes (`cumulative`, one per memory): a copied slot counts from its copy's start, a written one from the run's end.
    During a run, all its outputs and its workspace count. A run in place may take over slots that it reads and that are
    free at its end: it then adds max(0, written - taken) instead.
    """

    def __init__(self, setting: Setting, scale: Scale, most: int | None = None) -> None:
        self.cp: Any = import_module("ortools.sat.python.cp_model")
        self.setting, self.scale = setting, scale
        self.model: Any = self.cp.CpModel()
        self.one: Any = self.model.new_constant(1)
        self.length = [scale.length(act.duration) for act in setting.acts]
        everything = sum(self.length) + scale.ticks
        self.horizon = everything if most is None else min(everything, (most + 1) * scale.ticks - 1)
        self.whole = self.horizon == everything
        self.demands: list[list[tuple[Any, Any]]] = [[] for _ in setting.problem.machine.memories]
        self._add_acts()
        self._add_slots()
        self._add_reads()
        self._add_outputs()
        self._add_uses()
        self._add_runs_memory()
        self._add_capacities()
        if setting.effort.runs == 0:
            self._add_order()
        else:
            self._add_deadlines()
        self._add_objective()

    # --- acts and slots -----------------------------------------------------------------------------------------------

    def _add_acts(self) -> None:
        model, setting = self.model, self.setting
        self.start: list[Any] = []
        self.end: list[Any] = []
        self.present: list[Any] = []
        busy: dict[int, list[Any]] = {}
        for index, act in enumerate(setting.acts):
            length = self.length[index]
            start = model.new_int_var(0, max(0, self.horizon - length), "")
            present = self.one if act.must else model.new_bool_var("")
            if length > self.horizon:
                model.add(present == 0)
            interval = model.new_optional_fixed_size_interval_var(start, length, present, "")
            busy.setdefault(setting.resource(index), []).append(interval)
            if setting.rank[index]:
                model.add_implication(present, self.present[-1])
                model.add(self.end[-1] <= start).only_enforce_if(present)
            self.start.append(start)
            self.end.append(start + length)
            self.present.append(present)
        for resource, intervals in busy.items():
            model.add_no_overlap(intervals)
            mine = [act for act in range(len(setting.acts)) if setting.resource(act) == resource]
            model.add(sum(self.length[act] * self.present[act] for act in mine) <= self.horizon)

    def _add_slots(self) -> None:
        """Add residencies: the free instant and the bytes of each slot, and no overlap per value and memory."""
        model, setting, scale = self.model, self.setting, self.scale
        self.free: list[Any] = []
        places: dict[tuple[int, int], list[Any]] = {}
        for slot in setting.slots:
            maker = slot.maker
            key = slot.value, slot.memory
            begin = 0 if maker < 0 else self.start[maker]
            ready = 0 if maker < 0 else self.end[maker]
            there = self.one if maker < 0 else self.present[maker]
            stays = maker < 0 and key in setting.pinned
            free = model.new_int_var(self.horizon if stays else 0, self.horizon, "")
            model.add(free >= ready).only_enforce_if(there)
            places.setdefault(key, []).append(self._interval(begin, free, there))
            size = scale.size(setting.size[slot.value])
            if size:
                taken = self._interval(ready if maker < setting.runs else begin, free, there)
                self.demands[slot.memory].append((taken, size))
            self.free.append(free)
        for intervals in places.values():
            if len(intervals) > 1:
                model.add_no_overlap(intervals)

    def _interval(self, begin: Any, end: Any, present: Any) -> Any:
        size = self.model.new_int_var(0, self.horizon, "")
        return self.model.new_optional_interval_var(begin, size, end, present, "")

    def _add_reads(self) -> None:
        """Let each act pick a slot for each value that it reads."""
        model, setting = self.model, self.setting
        at: dict[tuple[int, int], list[int]] = {}
        for index, slot in enumerate(setting.slots):
            at.setdefault((slot.value, slot.memory), []).append(index)
        self.at = at
        self.picks: dict[tuple[int, int], Any] = {}
        """For each (act, slot): whether the act reads the slot."""
        for act, keys in enumerate(setting.reads):
            for key in keys:
                literals = []
                for index in at.get(key, ()):
                    maker = setting.slots[index].maker
                    pick = model.new_bool_var("")
                    if maker >= 0:
                        model.add_implication(pick, self.present[maker])
                        model.add(self.end[maker] <= self.start[act]).only_enforce_if(pick)
                    model.add(self.end[act] <= self.free[index]).only_enforce_if(pick)
                    self.picks[act, index] = pick
                    literals.append(pick)
                model.add(sum(literals) == self.present[act])

    def _add_outputs(self) -> None:
        model, setting = self.model, self.setting
        self.stays: dict[int, Any] = {}
        for key in setting.outputs:
            literals = []
            for index in self.at.get(key, ()):
                maker = setting.slots[index].maker
                stays = self.stays[index] = model.new_bool_var("")
                if maker >= 0:
                    model.add_implication(stays, self.present[maker])
                model.add(self.free[index] == self.horizon).only_enforce_if(stays)
                literals.append(stays)
            model.add_bool_or(literals)

    def _add_uses(self) -> None:
        """Exclude useless acts."""
        used: dict[int, list[Any]] = {}
        for (_, slot), pick in self.picks.items():
            used.setdefault(slot, []).append(pick)
        for slot, stays in self.stays.items():
            used.setdefault(slot, []).append(stays)
        served: dict[int, list[Any]] = {}
        for slot, entry in enumerate(self.setting.slots):
            served.setdefault(entry.maker, []).extend(used.get(slot, ()))
        for index, act in enumerate(self.setting.acts):
            if not act.must:
                self.model.add_bool_or([*served.get(index, ()), ~self.present[index]])

    # --- memory -------------------------------------------------------------------------------------------------------

    def _add_runs_memory(self) -> None:
        setting, scale = self.setting, self.scale
        graph = setting.problem.graph
        self.taken: dict[tuple[int, int], Any] = {}
        for act in range(setting.runs):
            task = setting.acts[act].item
            written = sum(setting.size[value] for value in graph.writes[task].tolist())
            workspace = int(graph.workspace[task])
            demand: Any = scale.size(written + workspace)
            if graph.in_place[task] and written:
                demand = self._reduced(act, written, workspace)
            elif not demand:
                continue
            interval = self.model.new_optional_fixed_size_interval_var(
                self.start[act], self.length[act], self.present[act], ""
            )
            self.demands[setting.home].append((interval, demand))

    def _reduced(self, act: int, written: int, workspace: int) -> Any:
        """Return the bytes that a run in place adds: its outputs less the slots it takes over, plus its workspace."""
        model, setting, scale = self.model, self.setting, self.scale
        credit = []
        for value, memory in setting.reads[act]:
            if (value, memory) in setting.pinned or not setting.size[value]:
                continue
            taken = model.new_bool_var("")
            for index in self.at.get((value, memory), ()):
                own = self.taken[act, index] = model.new_bool_var("")
                model.add_implication(own, self.picks[act, index])
                model.add(self.free[index] == self.end[act]).only_enforce_if(own)
                if index in self.stays:  # an output is never taken over, not even at the very end
                    model.add_implication(own, ~self.stays[index])
                self._keep_readers_off(act, index, own)
            model.add(sum(self.taken[act, index] for index in self.at.get((value, memory), ())) == taken)
            # A credit is rounded in the opposite direction.
            size = setting.size[value]
            credit.append((size // scale.memory_unit if scale.up else -(-size // scale.memory_unit)) * taken)
        least = scale.size(workspace)
        extra = model.new_int_var(least, least + scale.size(written), "")
        model.add(extra >= scale.size(written) + least - sum(credit))
        return extra

    def _keep_readers_off(self, act: int, slot: int, taken: Any) -> None:
        """Forbid reads of a slot that a run in place frees, at the instant at which the run ends.

        Copies that end at that instant are allowed. Copies of zero length that start there would come too late. If
        times are rounded up, the run ends before its last tick.
        """
        model, setting, scale = self.model, self.setting, self.scale
        for other in range(setting.runs, len(setting.acts)):
            pick = self.picks.get((other, slot))
            if pick is None:
                continue
            if scale.up and not scale.exact:
                model.add(self.end[other] + scale.ticks <= self.end[act]).only_enforce_if(pick, taken)
            elif self.length[other] < scale.ticks <= self.length[act]:
                here, there = (self._instant(time) for time in (self.start[other], self.end[act]))
                model.add(here < there).only_enforce_if(pick, taken)

    def _instant(self, tick: Any) -> Any:
        ticks = self.scale.ticks
        instant = self.model.new_int_var(0, self.horizon // ticks, "")
        self.model.add(ticks * instant <= tick)
        self.model.add(tick < ticks * instant + ticks)
        return instant

    def _add_capacities(self) -> None:
        setting, scale = self.setting, self.scale
        for index, memory in enumerate(setting.problem.machine.memories):
            if memory.capacity is None:
                continue
            room = scale.room(memory.capacity - setting.fixed[index])
            if room < 0:
                self.model.add_bool_or([])
            elif self.demands[index]:
                intervals, demands = zip(*self.demands[index], strict=True)
                self.model.add_cumulative(intervals, demands, room)

    # --- order and objective ------------------------------------------------------------------------------------------

    def _add_order(self) -> None:
        """Keep the reference order, and exclude needless repetitions."""
        model, setting = self.model, self.setting
        done: Any = 0
        for act in range(setting.runs):
            model.add(self.start[act] >= done).only_enforce_if(self.present[act])
            after = model.new_int_var(0, self.horizon, "")
            model.add(after >= done)
            model.add(after >= self.end[act]).only_enforce_if(self.present[act])
            done = after
        makers: dict[int, list[int]] = {}
        for slot in setting.slots:
            if 0 <= slot.maker < setting.runs:
                makers.setdefault(slot.value, []).append(slot.maker)
        for acts in makers.values():
            forced = sum(setting.acts[act].must for act in acts)
            if len(acts) > max(1, forced):
                model.add(sum(self.present[act] for act in acts) <= max(1, forced))

    def _add_deadlines(self) -> None:
        """End each optional run before the last one that can use its result."""
        latest = self.setting.latest_uses()
        for act in range(self.setting.runs):
            user = latest.get(self.setting.acts[act].item)
            if user is not None:
                self.model.add(self.end[act] <= self.start[user]).only_enforce_if(self.present[act])

    def _add_objective(self) -> None:
        """Minimise the end of the last act."""
        ticks = self.scale.ticks
        self.makespan: Any = self.model.new_int_var(0, self.horizon // ticks, "")
        self.model.add(self.makespan >= self.setting.least_units(self.scale))
        for end, present in zip(self.end, self.present, strict=True):
            self.model.add(end <= ticks * self.makespan + ticks - 1).only_enforce_if(present)
        self.model.minimize(self.makespan)

    # --- solutions ----------------------------------------------------------------------------------------------------

    def plan(self, value: Callable[[Any], int]) -> Plan:
        """Read a solution."""
        start = {act: value(self.start[act]) for act, there in enumerate(self.present) if value(there)}
        reads: dict[int, list[int]] = {act: [] for act in start}
        for (act, slot), pick in self.picks.items():
            if act in start and value(pick):
                reads[act].append(slot)
        return Plan(
            start,
            reads,
            {key for key, literal in self.taken.items() if value(literal)},
            {slot for slot, literal in self.stays.items() if value(literal)},
        )

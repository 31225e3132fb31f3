"""One iteration of a chain with parameters as a program: an order of runs, and the transfers that choices imply.

The `Choice` for each stage decides where its parameters live, whether they leave between forward and backward, and
which processor updates them. It also decides whether they are gathered once or twice, and whether its forward is
recomputed before its backward. The transfers between homes, the device and the updating processor's memory are then
forced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remat_algorithms.offload.swaps.program import AT_ONCE, Program, Run, Transfer
from remat_algorithms.offload.weights.parameters import Choice, Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """Decisions for all stages together.

    Attributes
    ----------
    one_ahead : bool
        Whether parameters return while the stage before them runs (double buffering), rather than as early as they
        obstruct no other step.
    prefetch : bool
        Whether parameters are gathered while the stage before them runs; otherwise its end comes first.
    late : bool
        Whether updates on the device wait for all backwards.
    stays : bool
        Whether parameters that live on the device stay until they are replaced; otherwise until their last use.
    away : bool
        Whether activations wait for their backward in another memory, the nearest one.
    paced : bool
        Whether no run is then more than two stages ahead of what has to leave, and activations return one stage ahead.
        Otherwise only free memory decides.
    far : bool
        Whether they wait in the furthest memory instead, several links away.
    """

    one_ahead: bool = False
    prefetch: bool = True
    late: bool = False
    stays: bool = False
    away: bool = False
    paced: bool = True
    far: bool = False


@dataclass(slots=True, eq=False)
class _Copy:
    """A residency of an activation in a memory, from its computation or arrival until its last use there.

    Attributes
    ----------
    value, memory : int
    uses : list of int
        Runs, including the run that computes it.
    made : int
        The run that computes it; `AT_ONCE` if it was initially resident or transferred.
    source : _Copy or None
        Source of the `transfer` that brings it for the run `needed`.
    sent : _Copy or None
        The copy that it was forwarded as.
    """

    value: int
    memory: int
    uses: list[int]
    made: int
    source: _Copy | None = None
    needed: int = -1
    sent: _Copy | None = None
    transfer: int | None = None


class Training:
    """One iteration as a program.

    Parameters
    ----------
    setting : Setting
    choices : sequence of Choice
        One for each stage.
    manner : Manner

    Notes
    -----
    Updates on the device follow their backward, if they need not wait for an exchange or for all of them; those
    elsewhere keep the backward's order.
    """

    def __init__(self, setting: Setting, choices: Sequence[Choice], manner: Manner | None = None) -> None:
        self.setting, self.choices = setting, choices
        self.manner = manner or Manner()
        self.graph = setting.placed(choices)
        count = len(setting.stages)
        self.runs: list[tuple[int, int, tuple[int, ...]]] = []  # (task, processor, runs that must end before)
        self.first, self.second, self.last = [0] * count, [0] * count, [0] * count
        self.sent: dict[int, int] = {}  # transfers that helped backwards wait for
        self.helper = 0 if setting.helper is None else setting.helper
        self.gathers: list[list[int]] = [[] for _ in setting.stages]
        self.exchange: dict[int, int] = {}  # collective: where it runs
        self.update: dict[int, int] = {}
        self.renewal: dict[int, int] = {}  # where new parameters are gathered
        self._forwards()
        self.loss = self._append(setting.graph.task("loss"))
        self._backwards()
        self._others()
        self.drops: list[list[int]] = [[] for _ in self.runs]
        self.replaces: list[list[int]] = [[] for _ in self.runs]
        self.transfers: list[Transfer] = []
        if any(choice.helped for choice in self.choices):
            self._shared_activations()
        else:
            self._activations()
        for task, position in self.exchange.items():
            buckets = [stage.bucket for stage in setting.stages if stage.exchange == task]
            self.drops[position] += [bucket for bucket in buckets if bucket is not None]
        for index in reversed(setting.updated):  # the order in which they are updated, and go home
            self._gathered(index)
            self._parameters(index)
            self._gradient(index)
            self._optimizer(index)

    @property
    def program(self) -> Program:
        """The runs and transfers."""
        rows = zip(self.runs, self.drops, self.replaces, strict=True)
        runs = [
            Run(task, processor, tuple(drops), tuple(replaces), after)
            for (task, processor, after), drops, replaces in rows
        ]
        return Program(runs, self.transfers)

    def _append(self, task: int, processor: int = 0, after: tuple[int, ...] = ()) -> int:
        self.runs.append((task, processor, after))
        return len(self.runs) - 1

    # --- runs ---------------------------------------------------------------------------------------------------------

    def _forwards(self) -> None:
        stages = self.setting.stages
        for index, (stage, choice) in enumerate(zip(stages, self.choices, strict=True)):
            if index == 0 or not self.manner.prefetch:
                self._gather(index, self.first[index - 1] if index else None)
            if self.manner.prefetch and index + 1 < len(stages):
                self._gather(index + 1, self.first[index - 1] if index else None)
            task = stage.plain if self.twice(choice) else stage.forward
            self.first[index] = self._append(task, self.helper if choice.helped else 0)

    def _backwards(self) -> None:
        """Append backwards, each with its preceding steps, exchanges, and updates on the device."""
        stages = self.setting.stages
        late: list[int] | None = [] if self.manner.late else None
        waiting: list[int] = []  # updates that wait for an exchange that overlaps with the next backward
        delayed: list[tuple[int, int]] = []  # updates that wait for some more backwards
        for index in reversed(range(len(stages))):
            stage, choice = stages[index], self.choices[index]
            before = self.last[index + 1] if index + 1 < len(stages) else self.loss
            if not self.manner.prefetch and self._again(index):
                self._gather(index, before)
            if self.manner.prefetch and index > 0 and self._again(index - 1):
                self._gather(index - 1, before)
            helped = choice.helped == 2
            if helped:
                self._others(index)
            self.second[index] = self._append(stage.forward) if self.twice(choice) else len(self.runs)
            self.last[index] = self._append(stage.backward, self.helper if helped else 0)
            for other in waiting:
                self._update(other)
            waiting = []
            task = stage.exchange
            if task is not None and all(one.exchange != task for one in stages[:index]):
                self.exchange[task] = self._append(task)
            ready = [k for k in self._exchanged_with(index) if stages[k].update is not None]
            ready = [k for k in ready if self.choices[k].updater == 0]
            if late is not None:
                late += ready
            elif task is None:
                delayed += [(index - self.choices[other].delay, other) for other in ready]
                for due, other in delayed:
                    if due >= index:
                        self._update(other)
                delayed = [entry for entry in delayed if entry[0] < index]
            else:
                waiting = ready
        for other in late or waiting or [other for _, other in delayed]:
            self._update(other)

    @staticmethod
    def twice(choice: Choice) -> bool:
        """Whether a stage's forward is recomputed before its backward."""
        return choice.helped == 1 or (choice.again and not choice.helped)

    def _exchanged_with(self, index: int) -> list[int]:
        """Return the stages whose gradients are there after a stage's backward, and its exchange, in their order."""
        task, stages = self.setting.stages[index].exchange, self.setting.stages
        if task is None:
            return [index]
        together = [k for k, stage in enumerate(stages) if stage.exchange == task]
        return together[::-1] if index == together[0] else []

    def _others(self, down_to: int = -1) -> None:
        """Append the updates elsewhere of the stages after one."""
        for index in reversed(self.setting.updated):
            if index > down_to and index not in self.update and (down_to < 0 or self.choices[index].updater != 0):
                self._update(index)

    def _update(self, index: int) -> None:
        stage = self.setting.stages[index]
        assert stage.update is not None
        self.update[index] = self._append(stage.update, self.choices[index].updater)
        if stage.gather is not None and stage.gathered is None:
            self.renewal[index] = self._append(stage.gather)

    def _again(self, index: int) -> bool:
        """Whether a stage's parameters are gathered a second time; those of the last one are still there."""
        if self.setting.stages[index].gathered is None or index == len(self.setting.stages) - 1:
            return False
        return not self.choices[index].keeps

    def _gather(self, index: int, after: int | None) -> None:
        stage = self.setting.stages[index]
        if stage.gathered is None:
            return
        assert stage.gather is not None
        self.gathers[index].append(self._append(stage.gather, 0, () if after is None else (after,)))

    # --- activations --------------------------------------------------------------------------------------------------

    def _activations(self) -> None:
        """Free every copy of an activation or its gradient after its last use; y0 ends where it must."""
        graph, setting = self.graph, self.setting
        inputs, output = graph.value("x0"), graph.value("y0")
        weights = {value for stage in setting.stages for value in stage.values}
        lives: list[tuple[int, list[int]]] = []
        current: dict[int, list[int]] = {}
        for position, (task, processor, _) in enumerate(self.runs):
            if processor != 0 or task in graph.parts:
                continue
            for values, writes in ((graph.reads[task].tolist(), False), (graph.writes[task].tolist(), True)):
                for value in values:
                    if value in weights:
                        continue
                    if value not in current or (writes and current[value][-1] != position):
                        current[value] = []
                        lives.append((value, current[value]))
                    current[value].append(position)
        for value, uses in lives:
            if value != output or uses is not current[value]:
                self.drops[uses[-1]].append(value)
            if self.manner.away:
                self._leave(value, uses)
        if setting.device != 0:
            self._carry(inputs, 0, setting.device, ready=AT_ONCE, needed=self.first[0])
            self._carry(output, setting.device, 0, ready=current[output][-1], needed=len(self.runs))

    def _shared_activations(self) -> None:
        """Move activations to their readers, to the helper and back, and free each copy after its last use."""
        graph, setting = self.graph, self.setting
        weights = {value for stage in setting.stages for value in stage.values}
        beside = setting.machine.processors[self.helper].memory
        inputs, output = graph.value("x0"), graph.value("y0")
        start = _Copy(inputs, setting.device, [], AT_ONCE)
        copies, at = [start], {(inputs, setting.device): start}

        def read(value: int, memory: int, position: int) -> _Copy:
            copy = at.get((value, memory))
            if copy is None:
                source = at[value, beside if memory == setting.device else setting.device]
                copy = at[value, memory] = _Copy(value, memory, [], AT_ONCE, source, position)
                source.sent = copy
                copies.append(copy)
            return copy

        for position, (task, processor, _) in enumerate(self.runs):
            memory = setting.machine.processors[processor].memory
            for value in graph.reads[task].tolist():
                if value not in weights:
                    read(value, memory, position).uses.append(position)
            for value in graph.writes[task].tolist():
                if value not in weights:
                    copy = at[value, memory] = _Copy(value, memory, [position], position)
                    copies.append(copy)
        read(output, setting.device, len(self.runs))
        backwards = {position: index for index, position in enumerate(self.last)}
        for copy in copies:
            if copy.source is not None:
                source = copy.source
                copy.transfer = self._carry(
                    copy.value,
                    source.memory,
                    copy.memory,
                    ready=source.made,
                    needed=copy.needed,
                    last_use=source.uses[-1] if source.uses else AT_ONCE,
                    previous=-1 if source.transfer is None else source.transfer,
                )
                if copy.memory != setting.device and copy.needed in backwards:
                    self.sent[backwards[copy.needed]] = copy.transfer
            kept = copy.value == output and copy.memory == setting.device
            if copy.uses and copy.sent is None and not kept:
                self.drops[copy.uses[-1]].append(copy.value)

    def _leave(self, value: int, uses: list[int]) -> None:
        """Keep an activation elsewhere between forwards and backwards, unless it is for the last stage."""
        setting, count = self.setting, len(self.setting.stages)
        before = [position for position in uses if position < self.loss]
        after = [position for position in uses if position > self.loss]
        shelter = setting.far_shelter if self.manner.far else setting.shelter
        if not before or not after or after[0] <= self.last[-1] or self.loss in uses or shelter is None:
            return
        last = max(index for index in range(count) if self.first[index] <= before[-1])
        user = self._in_backward_of(after[0])
        paced = self.manner.paced
        holds = self.first[last + 2] if paced and last + 2 < count else -1
        out = self._carry(
            value,
            setting.device,
            shelter,
            ready=before[-1],
            needed=len(self.runs),
            last_use=before[-1],
            holds=holds,
        )
        self._carry(
            value,
            shelter,
            setting.device,
            ready=before[-1],
            needed=after[0],
            begin=self.second[user + 1] if paced else -1,
            previous=out,
        )

    def _in_backward_of(self, position: int) -> int:
        """Return the stage to whose backward, or recomputation before it, a position belongs."""
        spans = zip(self.second, self.last, strict=True)
        return min(index for index, (second, last) in enumerate(spans) if last >= position >= second)

    # --- parameters ---------------------------------------------------------------------------------------------------

    def _gathered(self, index: int) -> None:
        """Free gathered parameters between forward and backward, if they are gathered again, and after the backward."""
        value = self.setting.stages[index].gathered
        if value is not None:
            if len(self.gathers[index]) > 1:
                self.drops[self.first[index]].append(value)
            self.drops[self.last[index]].append(value)

    def _uses(self, index: int) -> tuple[int, int, int]:
        """Return the runs that use a stage's own parameters: the first, that of its backward, and the last."""
        if self.choices[index].helped:
            return self.second[index], self.second[index], self.last[index]
        if self.setting.stages[index].gathered is None:
            return self.first[index], self.second[index], self.last[index]
        gathers = self.gathers[index]
        return gathers[0], gathers[-1], gathers[-1]

    def _parameters(self, index: int) -> None:
        stage, choice, setting = self.setting.stages[index], self.choices[index], self.setting
        value, device = stage.parameters, setting.device
        if value is None:
            return
        home, _ = setting.homes(choice)
        place = self._place(index)
        first, second, last = self._uses(index)
        streams = choice.streams and second != first
        read = stage.update is not None and value in self.graph.reads[stage.update].tolist()
        begin, again = self._ahead(index)
        spare: int | None = None  # a memory with a copy for an update there
        if choice.helped == 2:  # all readers are next to them
            spare = home
            if not read:
                self.drops[last].append(value)
        elif home != device:
            spare = home if read and place == home else None
            stays = spare is not None
            held = self.first[index] if choice.helped else AT_ONCE
            keep = stays or streams
            self._carry(value, home, device, ready=AT_ONCE, needed=first, begin=begin, keep=keep, last_use=held)
            if streams:
                self.drops[first].append(value)
                self._carry(value, home, device, ready=first, needed=second, begin=again, keep=stays)
        elif streams:
            refuge = setting.refuge
            assert refuge is not None
            spare = refuge if read and place == refuge else None
            out = self._carry(value, device, refuge, ready=AT_ONCE, needed=len(self.runs), last_use=first)
            self._carry(
                value, refuge, device, ready=first, needed=second, begin=again, keep=spare is not None, previous=out
            )
        if read:
            self.drops[self.update[index]].append(value)
        if read and place != device and spare is None:
            ready = second if streams else AT_ONCE if home == device else first
            self._carry(value, device, place, ready=ready, needed=self.update[index], last_use=last)
        elif not read and self.manner.stays and home == device and place == device:
            self.replaces[self.renewal.get(index, self.update[index])].append(value)
        elif (not read or place != device) and choice.helped != 2:
            self.drops[last].append(value)
        self._new_parameters(index, home, place)

    def _new_parameters(self, index: int, home: int, place: int) -> None:
        """Send new parameters home, or the rank's share of them to the memory where all are gathered first."""
        stage, made, where = self.setting.stages[index], self.update[index], place
        if stage.share is not None:
            renewal = self.renewal[index]
            self.drops[renewal].append(stage.share)
            if place != self.setting.device:
                self._carry(stage.share, place, self.setting.device, ready=made, needed=renewal)
            made, where = renewal, self.setting.device
        if where != home and stage.new_parameters is not None:
            self._carry(stage.new_parameters, where, home, ready=made, needed=len(self.runs))

    def _gradient(self, index: int) -> None:
        stage, place = self.setting.stages[index], self._place(index)
        ready = self.last[index] if stage.exchange is None else self.exchange[stage.exchange]
        holds = self.second[index - 2] if self.manner.away and self.manner.paced and index > 1 else -1
        if holds <= ready:  # exchanged together with those of earlier stages, after that run
            holds = -1
        for value in (stage.gradient, stage.reduced):
            if value is None:
                continue
            self.drops[self.update[index]].append(value)
            if place != self.setting.device and self.choices[index].helped != 2:
                device = self.setting.device
                self._carry(value, device, place, ready=ready, needed=self.update[index], holds=holds)

    def _optimizer(self, index: int) -> None:
        stage, place = self.setting.stages[index], self._place(index)
        _, home = self.setting.homes(self.choices[index])
        if stage.optimizer is None or stage.new_optimizer is None:
            return
        self.drops[self.update[index]].append(stage.optimizer)
        if place != home:
            self._carry(stage.optimizer, home, place, ready=AT_ONCE, needed=self.update[index])
            before = self._awaited_below(index) if self.choices[index].yields and place == self.setting.device else -1
            ready, end = self.update[index], len(self.runs)
            self._carry(stage.new_optimizer, place, home, ready=ready, needed=end, previous=before)

    def _awaited_below(self, index: int) -> int:
        """Return the transfer that takes the gradient of an activation to the next stage whose backward is helped."""
        helped = (below for below in reversed(range(index)) if self.choices[below].helped == 2)
        return next((self.sent[below] for below in helped if below in self.sent), -1)

    def _place(self, index: int) -> int:
        """Memory of the processor that updates a stage."""
        return self.setting.machine.processors[self.choices[index].updater].memory

    def _ahead(self, index: int) -> tuple[int, int]:
        """Return the runs with whose start a stage's parameters may come, for the forward and for the backward."""
        if not self.manner.one_ahead:
            return -1, -1
        if self.setting.stages[index].gathered is not None:
            return self.gathers[index][0] - 1, self.gathers[index][-1] - 1
        after = self.second[index + 1] if index + 1 < len(self.second) else self.loss
        return self.first[index] - 1, after

    def _carry(
        self,
        value: int,
        source: int,
        target: int,
        *,
        ready: int,
        needed: int,
        last_use: int = AT_ONCE,
        keep: bool = False,
        begin: int = -1,
        previous: int = -1,
        holds: int = -1,
    ) -> int:
        """Append the transfers from one memory to another; return the index of the last one."""
        links = self.setting.path(source, target)
        for hop, link in enumerate(links):
            self.transfers.append(
                Transfer(
                    value=value,
                    link=link,
                    ready=ready,
                    needed=needed,
                    last_use=AT_ONCE if hop else None if keep else last_use,
                    previous=len(self.transfers) - 1 if hop else previous,
                    begin=begin,
                    leaves=source == self.setting.device,
                    holds=holds if not hop else -1,
                )
            )
        return len(self.transfers) - 1

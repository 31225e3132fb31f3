"""Whether a training step of a configured model fits into memory: closed formulas, no search for schedules.

Forwards run in order, then backwards. A block is kept, with everything that its backward reads, or it is recomputed
from its input before its backward. The first blocks are recomputed: the last ones would be recomputed at once. Each of
these schedules is one that the verifier accepts for the chain of the same options, with the same peak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

from remat.generate import check
from remat.generate.models.instances import Stages, Workload, stages_of
from remat.generate.networks.parameters import ACCUMULATIONS, FLOAT32, MOMENTS, MOST_ZERO, States
from remat.generate.optimizers import Named, read_name

LONGEST = 2**26
"""Largest batch and longest sequence that are looked for."""

MOST_TRIALS = 512
"""Numbers of recomputed blocks that are tried: all of them, unless a model has more blocks."""

MOST_RANKS = 2**20

SAME_STATES = {"adamw": "adam", "adamw8": "adam8"}
"""Optimizers with the states of another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The states and temporary memory of an optimizer, and their partition over ranks.

    Attributes
    ----------
    optimizer : str
        A name of `remat.generate.optimizers`, or ``none``.
    precision : {"mixed", "pure"}
        Mixed: states of fp32 with a copy of 16-bit parameters. Pure: states of the parameters' own type.
    step : {"", "foreach", "fused", "loop"}
        The implementation of its step; empty for PyTorch's default on a device.
    data, zero : int
        Ranks that share the batch, and the stage of ZeRO.
    master, accumulation
        As of `States`.
    """

    optimizer: str = "adam"
    precision: str = "mixed"
    step: str = ""
    data: int = 1
    zero: int = 0
    master: bool | None = None
    accumulation: str = "same"

    @property
    def name(self) -> str:
        """The optimizer with its implementation, as in ``adam-fused``."""
        return "-".join(filter(None, (self.optimizer, self.step)))

    @property
    def moments(self) -> str:
        """The name of `MOMENTS` with its states."""
        return SAME_STATES.get(self.optimizer, self.optimizer)

    def has_master(self, element: int) -> bool:
        """Whether the states include an fp32 copy of the parameters."""
        return self.precision == "mixed" and States(optimizer=self.moments, master=self.master).has_master(element)

    def gradient_bytes(self, element: int) -> int:
        """Bytes in which the gradient of a parameter stays to the update."""
        return States(accumulation=self.accumulation).gradient_bytes(element)

    def state_bytes(self, element: int, count: int, factors: int) -> int:
        """Bytes of the states of so many parameters."""
        if self.precision == "mixed" or self.moments == "adam8":
            made = States(optimizer=self.moments, master=self.master if self.precision == "mixed" else False)
            return made.state_bytes(element, count, factors)
        factored = FLOAT32 * factors if self.optimizer == "adafactor" else 0
        return MOMENTS[self.moments] // FLOAT32 * element * count + factored

    @property
    def implementation(self) -> str:
        """The implementation of the optimizer's step on a GPU; empty without an optimizer."""
        return "" if self.optimizer == "none" else Named(self.optimizer, self.step).on("cuda")

    @property
    def implementations(self) -> tuple[str, ...]:
        """The known implementations of the optimizer's step."""
        return () if self.optimizer == "none" else tuple(Named(self.optimizer).known.steps)

    def step_bytes(self, element: int, count: int, largest: int) -> int:
        """Bytes that the optimizer's step takes for a moment, if so many are trained and the largest tensor has those.

        A step that updates one parameter after another may hold a copy of the previous parameter, which is not larger.
        """
        if self.optimizer == "none":
            return 0
        each = FLOAT32 if self.has_master(element) else element
        taken = Named(self.optimizer, self.step).temporaries("cuda")
        one = replace(taken, all=0).bytes([largest * each] * 2, [largest] * 2)
        return taken.all * each * count + one


def read_training(
    *,
    optimizer: str = "adam",
    precision: str = "mixed",
    step: str | None = None,
    master: bool | None = None,
    accumulation: str = "same",
    data: int = 1,
    zero: int = 0,
) -> Training:
    """Return the training that options describe.

    Parameters
    ----------
    optimizer : str
        ``none``, or a name of `remat.generate.optimizers`, optionally with its implementation.
    step : str, optional
        The implementation, if the name has none.
    precision, master, accumulation, data, zero
        As of `Training`.

    Raises
    ------
    OptionError
        If there is no such optimizer, or it has no such implementation.
    ValueError
        If options contradict each other, or are out of range.
    """
    implementation = step or ""
    if optimizer != "none":
        named = read_name(optimizer)
        if step and named.implementation not in ("", step):
            raise ValueError(f"step {step!r} contradicts optimizer {optimizer}; give the implementation once")
        implementation = step or named.implementation
        optimizer = read_name("-".join(filter(None, (named.family, implementation)))).family
    check.choice("precision", precision, ("mixed", "pure"))
    if master and precision == "pure":
        raise ValueError("master contradicts precision pure, whose states have no copy of the parameters in fp32")
    check.choice("accumulation", accumulation, ACCUMULATIONS)
    check.integer("data", data, minimum=1, maximum=MOST_RANKS)
    check.integer("zero", zero, maximum=MOST_ZERO)
    if zero and data == 1:
        raise ValueError(f"zero {zero} partitions memory over several ranks, but data, the number of ranks, is 1")
    return Training(
        optimizer=optimizer,
        precision=precision,
        step=implementation,
        data=data,
        zero=zero,
        master=master,
        accumulation=accumulation,
    )


class Static(NamedTuple):
    """Permanent bytes of one rank; `gathered` and `step` are temporary, for data of other ranks and for the update."""

    parameters: int
    gradients: int
    states: int
    gathered: int
    step: int

    @property
    def total(self) -> int:
        """Bytes during the forward and the backward."""
        return self.parameters + self.gradients + self.states + self.gathered


class Peak(NamedTuple):
    """The peak of forward and backward without static memory.

    Attributes
    ----------
    size : int
    logits : int
        The part of logits, their gradient and the loss.
    workspace : int
        The part of the task's working memory, apart from that of the loss.
    moment : str
        The task that runs at the peak, in words.
    recomputed : int
        Number of recomputed blocks.
    time : float
        Seconds of their recomputation.
    """

    size: int
    logits: int
    workspace: int
    moment: str
    recomputed: int
    time: float


def static_of(work: Workload, training: Training) -> Static:
    """Return what parameters, gradients and states take on one rank."""
    element, ranks, zero = work.setting.element, training.data, training.zero
    weights = gradients = states = trained = largest = largest_gradient = most = 0
    for part in work.parts:
        own = part.amounts
        weights += part.repeat * own.weights
        trained += part.repeat * own.trained
        gradients += part.repeat * training.gradient_bytes(element) * own.trained
        states += part.repeat * training.state_bytes(element, own.trained, own.factors)
        largest = max(largest, own.weights)
        largest_gradient = max(largest_gradient, own.trained * element)
        most = max(most, own.largest)

    def share(size: int, least: int) -> int:
        return -(-size // ranks) if zero >= least else size

    step = training.step_bytes(element, trained, most)
    gathered = (2 * largest if zero == 3 else 0) + (largest_gradient if zero >= 2 else 0)
    return Static(share(weights, 3), share(gradients, 2), share(states, 1), gathered, share(step, 1))


def exchanged_of(work: Workload, training: Training) -> int:
    """Return the bytes that each of several ranks sends in a step, in rings: O(parts of the model).

    Gradients are summed and divided, and updated parameters are collected. At ZeRO level 3, forward and backward
    collect all parameters instead.
    """
    ranks = training.data
    weights = sum(part.repeat * part.amounts.weights for part in work.parts)
    trained = sum(part.repeat * part.amounts.trained for part in work.parts) * work.setting.element
    collected = 2 * weights if training.zero == MOST_ZERO else trained
    return (trained + collected) * (ranks - 1) // ranks


class Rows(NamedTuple):
    """The individual stages."""

    source: int
    name: list[str]
    output: list[int]
    saved: list[int]
    gradient: list[int]
    workspace: list[tuple[int, int, int]]
    time: list[float]
    block: list[bool]
    memory: list[int]
    loss: int
    total: float


def rows_of(stages: Stages, work: Workload) -> Rows:
    """Return the figures of every stage, equal ones repeated."""
    found = Rows(stages.source, [], [], [], [], [], [], [], [], stages.loss["workspace"], 0.0)
    total, beside = stages.loss["time"], 0
    for row, parts in zip(stages.rows, stages.parts, strict=True):
        if parts[0].stack == 1 and not beside and work.model.encoder is not None:
            beside = found.output[-1]  # the gradient of what the encoder made, until all of the decoder has read it
        for _ in range(row.get("repeat", 1)):
            is_block = parts[0].block is not None
            found.name.append(f"block {sum(found.block) + 1}" if is_block else f"the {parts[0].name}")
            found.output.append(row["output_size"])
            found.saved.append(row["saved_size"])
            found.gradient.append(row["gradient_size"] if "gradient_size" in row else row["output_size"])
            found.workspace.append((row["forward_workspace"], row["saving_workspace"], row["backward_workspace"]))
            found.time.append(row["forward_time"])
            found.block.append(is_block)
            found.memory.append(beside)
            total += row["forward_time"] + row["backward_time"]
    return found._replace(total=total)


def peak_of(rows: Rows, recomputed: int, *, chunked: bool) -> Peak:
    """Return the peak if the first blocks are recomputed."""
    count = len(rows.output)
    left = recomputed
    again = []
    for block in rows.block:
        again.append(block and left > 0)
        left -= block
    kept = list(accumulate((0 if a else s for a, s in zip(again, rows.saved, strict=True)), initial=0))
    held = list(accumulate(rows.output, initial=rows.source))  # held[i]: the input and the outputs of i stages
    last = 0 if chunked else rows.output[-1]
    best = Peak(-1, 0, 0, "", recomputed, 0.0)

    def note(size: int, workspace: int, logits: int, moment: str) -> None:
        nonlocal best
        if size + workspace > best.size:
            best = best._replace(size=size + workspace, logits=logits, workspace=workspace, moment=moment)

    for i in range(count):
        plain, saving, _ = rows.workspace[i]
        size = held[i + 1] + kept[i] + (0 if again[i] else rows.saved[i])
        note(size, plain if again[i] else saving, last if i == count - 1 else 0, f"the forward of {rows.name[i]}")
    own = last + (0 if chunked else rows.gradient[-1]) + rows.loss
    note(held[count] + kept[count] + rows.gradient[-1] + rows.loss, 0, own, "the loss")
    for i in reversed(range(count)):
        below = rows.gradient[i - 1] if i else 0
        base = held[i + 1] + kept[i] + rows.saved[i] + rows.gradient[i] + rows.memory[i]
        ends = last + (0 if chunked else rows.gradient[-1]) if i == count - 1 else 0
        if again[i]:
            note(base, rows.workspace[i][1], ends, f"the recomputation of {rows.name[i]}")
        if rows.gradient[i] or not i:
            note(base + below, rows.workspace[i][2], ends, f"the backward of {rows.name[i]}")
    time = sum(time for time, a in zip(rows.time, again, strict=True) if a)
    return best._replace(time=time)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Memory and time of a training step.

    Attributes
    ----------
    work, training
    static : Static
    plain, full : Peak
        Without recomputation, and with all blocks recomputed.
    chosen : Peak or None
        The smallest number of recomputed blocks that fits; None if none fits, or without a budget.
    blocks : int
    total_time : float
        Seconds of the forward and the backward without recomputation.
    available : int or None
        Bytes of the budget without the reserve.
    """

    work: Workload
    training: Training
    static: Static
    plain: Peak
    full: Peak
    chosen: Peak | None
    blocks: int
    total_time: float
    available: int | None

    def needed(self, peak: Peak) -> int:
        """Bytes of the forward and the backward, or of the optimizer's step where that takes more."""
        return max(self.static.total + peak.size, self.step_peak)

    @property
    def step_peak(self) -> int:
        """Bytes while the optimizer works."""
        return self.static.total - self.static.gathered + self.static.step


def estimate(work: Workload, training: Training, available: int | None = None) -> Estimate:
    """Return memory and time of a training step, and the smallest number of recomputed blocks that fits the bytes."""
    rows = rows_of(stages_of(work), work)
    blocks = sum(rows.block)
    static = static_of(work, training)
    chunked = work.chunked
    plain, full = peak_of(rows, 0, chunked=chunked), peak_of(rows, blocks, chunked=chunked)
    found = Estimate(work, training, static, plain, full, None, blocks, rows.total, available)
    if available is None:
        return found
    for count in sorted({*range(0, blocks, 1 + blocks // MOST_TRIALS), blocks}):
        peak = peak_of(rows, count, chunked=chunked)
        if found.needed(peak) <= available:
            return replace(found, chosen=peak)
    return found


def fits(work: Workload, training: Training, available: int, *, recompute: bool) -> bool:
    """Whether a step fits, if no block or every block is recomputed."""
    rows = rows_of(stages_of(work), work)
    static = static_of(work, training)
    peak = peak_of(rows, sum(rows.block) if recompute else 0, chunked=work.chunked)
    step = static.total - static.gathered + static.step
    return max(static.total + peak.size, step) <= available


def largest(fits_with: Callable[[int], bool], most: int = LONGEST) -> int:
    """Return the largest number up to `most` that fits, by doubling and bisection; 0 if 1 does not."""
    good, bad = 0, 1
    while bad <= most and fits_with(bad):
        good, bad = bad, 2 * bad
    bad = min(bad, most + 1)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits_with(middle) else (good, middle)
    return good


def largest_batch(work: Workload, training: Training, available: int, *, recompute: bool) -> int:
    """Return the largest batch that fits."""

    def ask(batch: int) -> bool:
        own = replace(work, setting=replace(work.setting, batch=batch))
        return fits(own, training, available, recompute=recompute)

    return largest(ask)


def longest_sequence(work: Workload, training: Training, available: int, *, recompute: bool) -> int | None:
    """Return the longest sequence that fits, up to the model's positions; None if the model has a fixed length."""
    if work.model.decoder.length is not None:
        return None

    def ask(sequence: int) -> bool:
        own = replace(work, setting=replace(work.setting, sequence=sequence))
        return fits(own, training, available, recompute=recompute)

    return largest(ask, work.model.positions or LONGEST)


def stages_of_zero(work: Workload, training: Training) -> Iterator[tuple[int, Estimate]]:
    """Yield the estimate for each stage of ZeRO."""
    for zero in range(4):
        yield zero, estimate(work, replace(training, zero=zero))

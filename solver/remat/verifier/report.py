"""What the verifier returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from remat.graph.taskgraph import IntArray, NumberArray
from remat.messages import one_line
from remat.units import Number


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule.

    Attributes
    ----------
    step : int or None
        Index of the step; None for what concerns the schedule as a whole.
    rule : str
        Name of the rule, such as ``read-missing``.
    message : str
        The figures, on one line.
    """

    step: int | None
    rule: str
    message: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", one_line(self.message))

    def __str__(self) -> str:
        where = "schedule" if self.step is None else f"step {self.step}"
        return one_line(f"{where}: {self.rule}: {self.message}")


@dataclass(frozen=True, slots=True)
class Peak:
    """The most bytes that a memory held, and the step (None: the initial residency) that set it."""

    size: int
    step: int | None


@dataclass(frozen=True, slots=True)
class Profile:
    """Bytes in one memory over time: `size[i]` from `time[i]` on, until `time[i+1]`.

    Several entries may share one time (steps of no length); they follow each other in execution order. Sizes are int64,
    or Python's integers where the steps make more in all than int64 holds.
    """

    time: NumberArray
    size: IntArray


@dataclass(frozen=True)
class Steady:
    """What one period takes, where a pattern of operations is repeated without end.

    Attributes
    ----------
    period : int or float
        Time from one micro-batch to the next; of a pattern of samples, that of all `samples`.
    peaks : mapping of memory name to bytes
        The most that each memory holds at any instant of a period, all versions of parameters included.
    busy : mapping of resource name to time
        Time of each period in which each processor and channel is occupied.
    processors : tuple of str
        Which of these run operations.
    in_flight : tuple of int
        For each stage, the most micro-batches between the start of their forward and the end of their backward.
    versions : tuple of int
        For each stage, how many versions of its parameters there are at a time.
    staleness : tuple of int
        For each stage, how often its parameters change between the forward of a micro-batch and the change that it
        takes part in.
    samples : int
        Samples, micro-batches or steps of training of a period.
    latency : int, float or None
        Of a pattern of samples: the longest time from the start of a sample's first step to the end of its last one.
        There are then no stages: `in_flight` has one entry, the most samples between these two, and `versions` and
        `staleness` none.
    what : str
        What follows each other: micro-batches, samples, or steps of training.
    """

    period: Number
    peaks: Mapping[str, int]
    busy: Mapping[str, Number]
    processors: tuple[str, ...]
    in_flight: tuple[int, ...]
    versions: tuple[int, ...]
    staleness: tuple[int, ...]
    samples: int = 1
    latency: Number | None = None
    what: str = "micro-batch"

    @property
    def time_per_sample(self) -> Number:
        """The period, of one sample, micro-batch or step of training."""
        if isinstance(self.period, int) and self.period % self.samples == 0:
            return self.period // self.samples
        return self.period / self.samples

    @property
    def bubble(self) -> dict[str, float]:
        """Share of the period in which each processor that runs operations runs none."""
        return {name: 1 - self.busy[name] / self.period for name in self.processors}


@dataclass(frozen=True)
class Report:
    """A verified schedule's figures, or what is wrong with it.

    Attributes
    ----------
    violations : tuple of Violation
        Empty for a valid schedule; at most `remat.verifier.findings.MOST_VIOLATIONS` of each rule.
    makespan : int or float
    peaks : mapping of memory name to Peak
    transferred : mapping of link name to bytes
    busy : mapping of resource name to time
        Time in which each processor and channel is occupied; the rest of the makespan is idle time.
    overlap : mapping of channel name to time
        Time in which each channel that is no processor works while some processor runs a task.
    run_time : int or float
        Sum of the times of all runs.
    recompute_time : int or float
        `run_time` minus the no-recompute time.
    profiles : mapping of memory name to Profile
    start, end : (steps,) arrays
    spans : mapping of processor name to time
        From the start of each processor's first run to the end of its last; 0 for those that run nothing. Steps of
        training that follow each other without a barrier take as long as the largest.
    steady : Steady or None
        Of a pipeline whose micro-batches follow each other without end: what each period takes.
    arenas : mapping of memory name to bytes
        Of a schedule with addresses: the verified arena of each memory that is laid out.
    notes : tuple of str
        Remarks that are no violations (a machine that differs from the instance's).
    """

    violations: tuple[Violation, ...]
    makespan: Number
    peaks: Mapping[str, Peak]
    transferred: Mapping[str, int]
    busy: Mapping[str, Number]
    overlap: Mapping[str, Number]
    run_time: Number
    recompute_time: Number
    profiles: Mapping[str, Profile]
    start: NumberArray
    end: NumberArray
    spans: Mapping[str, Number] = field(default_factory=dict)
    steady: Steady | None = None
    arenas: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Whether the schedule breaks no rule."""
        return not self.violations

    @property
    def peak_memory(self) -> dict[str, int]:
        """Peak bytes per memory."""
        return {name: peak.size for name, peak in self.peaks.items()}

    @property
    def objective(self) -> Number:
        """What schedules are compared by: the makespan, or of a stream, which has no end, the time per sample."""
        return self.makespan if self.steady is None else self.steady.time_per_sample

    @property
    def bubble(self) -> dict[str, float]:
        """Share of its span in which each processor runs nothing."""
        return {name: 1 - self.busy[name] / span if span else 0.0 for name, span in self.spans.items()}

    @property
    def idle(self) -> dict[str, Number]:
        """Idle time of each resource within the makespan."""
        return {name: self.makespan - time for name, time in self.busy.items()}

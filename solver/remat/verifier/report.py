"""The verifier's report: violations, peaks, profiles and figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import ClassVar

from remat.graph.machine import Machine
from remat.graph.taskgraph import IntArray, NumberArray, TaskGraph
from remat.messages import one_line
from remat.schedule.steps import Steps
from remat.units import Number, Units


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule.

    Attributes
    ----------
    step : int or None
        Index of the step; None if the violation concerns the whole schedule.
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
    """Peak bytes of a memory, and the step that reached them (None: the initial residency)."""

    size: int
    step: int | None


@dataclass(frozen=True, slots=True, repr=False)
class Profile:
    """Bytes in one memory over time: `size[i]` from `time[i]` on, until `time[i+1]`.

    Several entries may share one time (steps of zero duration); they are in execution order. Sizes are int64, or
    Python's integers if the sum of all allocations exceeds int64.
    """

    time: NumberArray
    size: IntArray

    def __repr__(self) -> str:
        return f"<Profile: {len(self.time):,} entries, at most {int(max(self.size, default=0)):,}>"


@dataclass(frozen=True, slots=True)
class Subject:
    """What a report is about: names and units for its text."""

    graph: TaskGraph
    machine: Machine
    steps: Steps
    units: Units


@dataclass(frozen=True)
class Steady:
    """Figures of one period of a periodic schedule.

    Attributes
    ----------
    period : int or float
        Time from one micro-batch to the next; for a pattern of samples, the time of all `samples`.
    peaks : mapping of memory name to bytes
        Peak of each memory within a period, including all versions of parameters.
    busy : mapping of resource name to time
        Busy time of each processor and channel per period.
    processors : tuple of str
        The processors that run operations.
    in_flight : tuple of int
        For each stage, the maximum number of micro-batches between their forward's start and their backward's end.
    versions : tuple of int
        For each stage, the number of versions of its parameters that exist at once.
    staleness : tuple of int
        For each stage, the number of parameter updates between the forward of a micro-batch and the update that uses
        its gradient.
    samples : int
        Samples, micro-batches or steps of training per period.
    latency : int, float or None
        For a pattern of samples: the longest time from the start of a sample's first step to the end of its last step.
        Such patterns have no stages: `in_flight` has one entry, the maximum number of samples in flight, and
        `versions` and `staleness` are empty.
    what : str
        The repeated unit: micro-batch, sample, or step of training.
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
        """Time per sample, micro-batch or step of training."""
        if isinstance(self.period, int) and self.period % self.samples == 0:
            return self.period // self.samples
        return self.period / self.samples

    @property
    def bubble(self) -> dict[str, float]:
        """Idle share of the period, for each processor that runs operations."""
        return {name: 1 - self.busy[name] / self.period for name in self.processors}


@dataclass(frozen=True, repr=False)
class Report:
    """Figures and violations of a schedule; times and sizes are in the instance's units.

    Its text is what `remat verify` prints.

    Attributes
    ----------
    violations : tuple of Violation
        Empty for a valid schedule; at most `remat.verifier.findings.MOST_VIOLATIONS` of each rule.
    makespan : int or float
    peaks : mapping of memory name to Peak
    transferred : mapping of link name to bytes
    busy : mapping of resource name to time
        Busy time of each processor and channel; the rest of the makespan is idle time.
    overlap : mapping of channel name to time
        For each channel that is not a processor: its busy time while some processor runs a task.
    run_time : int or float
        Sum of the times of all runs.
    recompute_time : int or float
        `run_time` minus the no-recompute time.
    energy : int, float or None
        Energy of all runs and transfers; None if neither a task nor a link of the machine has an energy.
    profiles : mapping of memory name to Profile
    start, end : (steps,) arrays
    spans : mapping of processor name to time
        From the start of each processor's first run to the end of its last; 0 for idle processors. Without a barrier
        between them, successive training steps take as long as the largest span.
    steady : Steady or None
        For a periodic schedule: the figures of one period.
    arenas : mapping of memory name to bytes
        For a schedule with addresses: the verified arena of each memory with addresses.
    notes : tuple of str
        Remarks that are not violations, for example a machine that differs from the instance's.
    subject : Subject or None
        The graph, machine, steps and units, for the text; None in reports of the verifier alone.
    """

    _shown_by: ClassVar[str] = "remat.report.text.verdict"

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
    energy: Number | None = None
    spans: Mapping[str, Number] = field(default_factory=dict)
    steady: Steady | None = None
    arenas: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = field(default=())
    subject: Subject | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        text: str = import_module(self._shown_by).verdict(self)
        return text

    @property
    def ok(self) -> bool:
        """Whether the schedule is valid."""
        return not self.violations

    @property
    def peak_memory(self) -> dict[str, int]:
        """Peak bytes per memory."""
        return {name: peak.size for name, peak in self.peaks.items()}

    @property
    def objective(self) -> Number:
        """Figure that compares schedules: the makespan, or for a stream the time per sample."""
        return self.makespan if self.steady is None else self.steady.time_per_sample

    @property
    def bubble(self) -> dict[str, float]:
        """Idle share of each processor's span."""
        return {name: max(1 - self.busy[name] / span, 0.0) if span else 0.0 for name, span in self.spans.items()}

    @property
    def idle(self) -> dict[str, Number]:
        """Idle time of each resource within the makespan; sums of floats may exceed it by their rounding."""
        return {name: max(self.makespan - time, 0) for name, time in self.busy.items()}

"""The findings of the referee."""

from dataclasses import dataclass, field


@dataclass
class Report:
    """The verdict: violations as (step index or None, rule), and the figures of the schedule.

    For a periodic schedule, `makespan` and `peaks` are those of the samples or micro-batches of the instance, from an
    empty machine; for a chain, those of one step. `steady_peaks` are those of any period, and `objective` is the time
    per sample, micro-batch or step.
    """

    violations: list = field(default_factory=list)
    makespan: float = 0
    peaks: dict = field(default_factory=dict)
    peak_steps: dict = field(default_factory=dict)  # first step at which the peak stands, None: at the start
    recompute_time: float = 0
    transferred: dict = field(default_factory=dict)
    idle: dict = field(default_factory=dict)
    overlap: dict = field(default_factory=dict)  # for each channel that is not a processor: its time during runs
    machine_differs: bool = False
    has_instants: bool = False  # a run takes no time; its overlaps then depend on the order of the list
    period: float | None = None
    steady_peaks: dict = field(default_factory=dict)
    time_per_sample: float | None = None
    latency: float | None = None  # of a stream: from the start of a sample to its end
    in_flight: tuple = ()  # of each stage of a pipeline without end: the most micro-batches at once
    versions: tuple = ()  # of each stage: how many versions of its parameters lie there
    staleness: tuple = ()  # of each stage: how often its parameters change between a forward and its own change

    @property
    def ok(self):
        """No violation."""
        return not self.violations

    @property
    def rules(self):
        """The set of broken rules."""
        return {rule for _, rule in self.violations}

    @property
    def objective(self):
        """The figure by which schedules of one instance are compared."""
        return self.makespan if self.time_per_sample is None else self.time_per_sample

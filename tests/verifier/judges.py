"""Put one schedule before both judges: the verifier and the referee of the oracles."""

from dataclasses import dataclass, field

from remat.instance import load
from remat.instance.lowering import lower, machine_of
from remat.schedule.document import SCHEMA, parse_steps
from remat.verifier import check
from tests.oracles import referee


@dataclass
class Case:
    """An instance document, and what it lowers to."""

    document: dict
    graph: object = field(init=False)
    machine: object = field(init=False)
    units: object = field(init=False)

    def __post_init__(self):
        instance = load(self.document)
        self.graph, self.machine, self.units = lower(instance), machine_of(instance), instance.units.build()

    def columns(self, steps):
        """Parse a plain list of steps."""
        return parse_steps({"schema": SCHEMA, "steps": steps}, self.graph, self.machine, self.units)

    def verify(self, steps):
        """Return the verifier's report on steps with start times."""
        return check(self.graph, self.machine, self.columns(steps))

    def judge(self, steps):
        """Return the referee's report on the same steps."""
        return referee.check(self.document, steps)


def rules(report):
    """Return what a report of either judge objects to: a set of (step, rule)."""
    return {item if isinstance(item, tuple) else (item.step, item.rule) for item in report.violations}


def close(one, other, scale):
    """Whether two times are the same: exactly for integers, else up to rounding."""
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    return abs(one - other) <= 1e-9 * abs(scale)


def same_figures(report, verdict):
    """Assert that the verifier measured what the referee measured."""
    assert report.ok, report.violations
    assert verdict.ok, verdict.violations
    scale = verdict.makespan
    assert close(report.makespan, verdict.makespan, scale)
    assert report.peak_memory == verdict.peaks
    assert {name: peak.step for name, peak in report.peaks.items()} == verdict.peak_steps
    assert report.transferred == verdict.transferred
    assert close(report.recompute_time, verdict.recompute_time, abs(report.run_time) + scale)
    for name, idle in verdict.idle.items():
        if isinstance(name, str):  # the oracle's unnamed channels have no counterpart
            assert close(report.idle[name], idle, scale)
    for name, overlap in verdict.overlap.items():
        if isinstance(name, str):
            assert close(report.overlap[name], overlap, scale)
    for name, profile in report.profiles.items():
        assert profile.size.max() == report.peaks[name].size
        assert (profile.time[1:] - profile.time[:-1] >= -1e-9 * scale).all()

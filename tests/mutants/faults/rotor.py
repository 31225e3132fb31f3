"""Faults of rotor's fronts: dominance, pruning by limits, and the traceback of schedules."""

from tests.mutants.fault import faults_of

FAULTS = faults_of(
    "algorithms/remat_algorithms/chain/rotor",
    ("tests/algorithms/chain/rotor/test_fronts.py",),
    [
        (
            "front.py",
            "keep[1:] = lowered[1:] < np.minimum.accumulate(lowered)[:-1]",
            "keep[1:] = lowered[1:] <= np.minimum.accumulate(lowered)[:-1]",
            "a front has no point that is as slow as one before",
        ),
        (
            "front.py",
            "        step[first[::2]] += self.cost\n",
            "        step[first[1::2]] += self.cost - 1\n",
            "a sum costs what a split costs besides",
        ),
        (
            "front_table.py",
            "low = np.maximum(np.maximum(low, pool.need[a] + beside), pool.need[b])",
            "low = np.maximum(pool.need[a] + beside, pool.need[b])",
            "a split needs what its sweep needs",
        ),
        (
            "excess_limit.py",
            "for by in {low, low + (taken != low << self.shift)}:",
            "for by in {low}:",
            "the rooms of a bin come from two bins",
        ),
        (
            "excess_limit.py",
            "        upper[-1] = NEVER\n",
            "",
            "the last bin has no end",
        ),
        (
            "tick_costs.py",
            "spared=quick - alone,",
            "spared=quick * 0,",
            "a stage alone may need no forward",
        ),
    ],
)

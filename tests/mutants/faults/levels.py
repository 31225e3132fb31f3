"""Faults of checkpointing on several levels of storage."""

from tests.mutants.fault import faults_of

HREVOLVE, ROWS, UNIFORM = "h_revolve.py", "level_rows.py", "uniform.py"

FAULTS = faults_of(
    "algorithms/remat_algorithms/adjoint/levels",
    ("tests/algorithms/adjoint/levels/test_levels.py",),
    [
        (
            HREVOLVE,
            "if level.slots >= advances > 0:",
            "if level.slots >= advances - 1 > 0:",
            "one slot too few may run out",
        ),
        (
            HREVOLVE,
            "tops[loop.given].stored[advances] < best.live[advances]",
            "tops[loop.given].stored[advances] > best.live[advances]",
            "a given x0 is used where that is better",
        ),
        (
            HREVOLVE,
            ".live[loop.steps - 1]) + loop.backward",
            ".live[loop.steps - 1])",
            "the value counts the backwards",
        ),
        (
            ROWS,
            "before = left.stored if self.left_stored else left.live",
            "before = left.stored",
            "what was read last is not stored any more",
        ),
        (
            ROWS,
            "return bool(self.below.live[advances] <= mine)",
            "return bool(self.below.live[advances] < mine)",
            "on ties nothing is stored in vain",
        ),
        (
            ROWS,
            "last=not kept or count == 0 or descends",
            "last=count == 0 or descends",
            "the last read of a checkpoint takes it away",
        ),
        (
            ROWS,
            "and (advances == 0 or row.descends(advances, stored=True))",
            "and row.descends(advances, stored=True)",
            "a single step leaves nothing in storage",
        ),
        (
            UNIFORM,
            "min(steps, capacity // state)",
            "min(steps, -(-capacity // state))",
            "a part of a state is no slot",
        ),
        (
            UNIFORM,
            "if self.steps > 1 and not any(level.slots for level in levels):",
            "if not any(level.slots for level in levels):",
            "a single step needs no slot",
            ("tests/algorithms/adjoint/test_every_algorithm.py",),
        ),
    ],
)

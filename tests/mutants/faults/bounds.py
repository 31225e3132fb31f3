"""Faults of the bounds on time and memory, and of the grid of budgets."""

from tests.mutants.fault import faults_of

BOUNDS, GRID = "graph/bounds.py", "solving/budget_grid.py"
OF_TIME_AND_MEMORY = ("tests/algorithms/parallel/test_memory_time_bound.py",)
OF_WHOLE = ("tests/graph/test_whole_bounds.py",)
OF_HUGE_SIZES = ("tests/verifier/test_huge_sizes.py",)
OF_GRID = ("tests/solving/test_budget_grid.py",)

FAULTS = faults_of(
    "solver/remat",
    ("tests/graph/test_bounds.py",),
    [
        (
            BOUNDS,
            "made.update(value for value in writes[task] if value not in reads[task])",
            "made.update(writes[task])",
            "who writes back what it reads does not make it",
        ),
        (
            BOUNDS,
            "_work(graph, needed) / sum(_exact_speed(processor.speed) for processor in machine.processors)",
            "_work(graph, needed) / len(machine.processors)",
            "slow processors make the bound larger",
            OF_WHOLE,
        ),
        (
            BOUNDS,
            " - _spared(graph, needed.forced)",
            "",
            "two at once take less than one after the other",
            ("tests/algorithms/parallel/pipeline/test_named_schedules.py",),
        ),
        (
            BOUNDS,
            "return Fraction(str(speed))",
            "return Fraction(speed)",
            "speeds are exact as they are written",
            OF_WHOLE,
        ),
        (
            BOUNDS,
            "return math.ceil(bound / step) * step",
            "return math.floor(bound / step) * step",
            "whole bounds are rounded up",
            OF_WHOLE,
        ),
        (
            BOUNDS,
            "    if step:\n        return math.ceil",
            "    if step := step or 1:\n        return math.ceil",
            "what need not be whole is not rounded up",
            OF_WHOLE,
        ),
        (
            BOUNDS,
            "size, workspace = size.astype(object), workspace.astype(object)",
            "pass",
            "working sets leave no int64",
            OF_HUGE_SIZES,
        ),
        (
            BOUNDS,
            "return static + max(ends)",
            "return static + sum(ends)",
            "inputs and outputs need not lie there together",
        ),
        (
            BOUNDS,
            "np.maximum(0, write_bytes - free_reads)",
            "np.maximum(0, write_bytes - read_bytes)",
            "in place, pinned inputs give no room",
        ),
        (
            BOUNDS,
            "if len(order) < sum(chosen) or not outputs <= available:",
            "if len(order) < sum(chosen):",
            "who makes an output is not idle",
        ),
        (
            BOUNDS,
            "shared[readers[value]] = shared.get(readers[value], 0) + size[value] * duration[task]",
            "shared[1] = shared.get(1, 0) + size[value] * duration[task]",
            "readers share a value",
            OF_TIME_AND_MEMORY,
        ),
        (
            GRID,
            "return self.offset + ((size - self.offset) // self.step + 1) * self.step",
            "return self.offset + -((self.offset - size) // self.step) * self.step",
            "above a budget is not that budget",
            OF_GRID,
        ),
        (
            GRID,
            "elif inner // self.step + 1 <= count - 2:",
            "elif inner // self.step <= count - 2:",
            "no more budgets than asked for",
            OF_GRID,
        ),
    ],
)

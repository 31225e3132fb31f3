"""Faults of placement: the list scheduler, its short cut, and the choice between them."""

from tests.mutants.fault import faults_of

GENERAL, SEQUENTIAL = "list_scheduling.py", "sequential.py"

FAULTS = faults_of(
    "solver/remat/placement",
    ("tests/placement/test_place.py", "tests/placement/test_draws.py"),
    [
        (
            GENERAL,
            "self.used = [graph.static_bytes(machine, memory) for memory in range(len(machine.memories))]",
            "self.used = [0] * len(machine.memories)",
            "static memory takes room",
        ),
        (
            GENERAL,
            "        for processor in processors:\n            self.free_at[processor] = end\n",
            "        for processor in processors[:1]:\n            self.free_at[processor] = end\n",
            "a task occupies all of its processors",
        ),
        (
            GENERAL,
            "extra = max(0, total - freed_reads)",
            "extra = max(0, total - freed)",
            "in place, only inputs make room for outputs",
        ),
        (
            GENERAL,
            "taken - total + replaced + freed)",
            "taken - total + freed)",
            "the copy that a write replaces goes",
        ),
        (
            GENERAL,
            "moved % ends.bandwidth == 0",
            "size % ends.bandwidth == 0",
            "times of parts are not rounded down",
        ),
        (
            GENERAL,
            "self._release(earliest, memory, self.present[key])",
            "self._release(earliest, memory, self.size[value])",
            "a drop gives back what is there, which may be a part",
        ),
        (
            GENERAL,
            "while start + duration < end:  # float64",
            "while start + duration < end * (1 - 1e-12):  # float64",
            "float ends that round down are late enough",
        ),
        (
            GENERAL,
            "isinstance(duration, int) and longer < 2**53 and longer == int(longer)",
            "isinstance(duration, int) and longer == int(longer)",
            "a quotient that float64 has rounded is no whole time",
        ),
        (
            GENERAL,
            "max(ends, default=0) < 2**62",
            "max(ends, default=0) < 2**63",
            "starts are integers only while all sums of times are",
        ),
        (
            SEQUENTIAL,
            "size = size.astype(object)",
            "pass",
            "sums of sizes never wrap",
            ("tests/verifier/test_huge_sizes.py",),
        ),
        (
            SEQUENTIAL,
            "over = (during > memory.capacity)",
            "over = (during >= memory.capacity)",
            "a full memory is not overfull",
        ),
        (
            SEQUENTIAL,
            "return np.minimum(reused, written)",
            "return reused",
            "in place, outputs take over no more than they need",
        ),
        (
            SEQUENTIAL,
            "(codes[1:] == codes[:-1]) & makes[:-1]",
            "codes[1:] == codes[:-1]",
            "what has been freed is not freed again",
        ),
        (
            SEQUENTIAL,
            "for k in range(int(counts.max(initial=0))):",
            "for k in range(min(1, int(counts.max(initial=0)))):",
            "all that a run reads and drops makes room for what it writes in place",
        ),
        (
            SEQUENTIAL,
            "if first is None or step < first.step:",
            "if first is None:",
            "the first overrun of all memories is named",
        ),
        (
            "place.py",
            "if steps.unknown or (steps.amount >= 0).any() or",
            "if steps.unknown or",
            "the short cut is for whole values only",
        ),
    ],
)

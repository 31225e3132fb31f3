"""Faults of the verifier."""

from tests.mutants.fault import faults_of

REFEREE, MEMORY, RESIDENCY, TIMELINE = "referee.py", "memory.py", "residency.py", "timeline.py"
FOLLOWING, IN_TURN, OF_IN_TURN = "event_simulation.py", "sequential.py", ("tests/verifier/test_sequential.py",)
HIDDEN, OF_HIDDEN = "tolerance.py", ("tests/verifier/test_tolerance.py",)

OF_CYCLES = ("tests/algorithms/offload/weights/test_periodic_steps.py",)
OF_COLLECTIVES = ("tests/verifier/test_dag_devices.py", "tests/instance/test_dag_devices.py")

FAULTS = faults_of(
    "solver/remat/verifier",
    ("tests/verifier/test_rules.py", "tests/verifier/test_corruptions.py"),
    [
        (
            MEMORY,
            "for memory in memories_of(machine, steps, step)]",
            "for memory in memories_of(machine, steps, step)[:1]]",
            "a collective's workspace is used in each memory",
            OF_COLLECTIVES,
        ),
        (
            "collectives.py",
            "[*memories[1:], *memories[:1]]",
            "[*memories[1:], *memories[-1:]]",
            "a ring is closed",
            OF_COLLECTIVES,
        ),
        (
            "collectives.py",
            "pairs if len(pairs) > 1 else [pair for pair in pairs if pair in machine.link_index]",
            "pairs if len(pairs) > 1 else []",
            "one part alone occupies the way to its equals",
            OF_COLLECTIVES,
        ),
        (
            "repeated_steps.py",
            "arrives - late > begins + self.slack",
            "arrives - 2 * late > begins + self.slack",
            "what a step begins with comes in time",
            OF_CYCLES,
        ),
        (
            "repeated_steps.py",
            "kept += (self.lag[place.value] - 1) * size",
            "kept += 0 * size",
            "versions that wait for their step take room",
            OF_CYCLES,
        ),
        (
            TIMELINE,
            "is_run & ~np.asarray(apart, dtype=bool)",
            "is_run",
            "a collective's time does not depend on speeds",
            OF_COLLECTIVES,
        ),
        (
            FOLLOWING,
            "released = np.maximum.accumulate(timeline.release_position[mine])",
            "released = timeline.release_position[mine]",
            "a long step occupies its processor beyond short ones",
        ),
        (
            REFEREE,
            "np.concatenate((begin[:1], np.maximum.accumulate(end)[:-1]))",
            "np.concatenate((begin[:1], end[:-1]))",
            "overlapping runs count once in the overlap",
        ),
        (
            "integer_sums.py",
            "return np.int64 if total < LARGEST else object",
            "return np.int64",
            "sums of sizes never wrap",
            ("tests/verifier/test_huge_sizes.py",),
        ),
        (
            "integer_sums.py",
            "total += of_task[runs].sum() + size[copies].sum()",
            "total += size[copies].sum()",
            "what is made again is counted again",
            ("tests/verifier/test_huge_sizes.py",),
        ),
        (
            TIMELINE,
            "return link.latency + int(moved.max()) // link.bandwidth < 2**62 and not",
            "return not",
            "a transfer's time never wraps",
            ("tests/verifier/test_huge_sizes.py",),
        ),
        (
            TIMELINE,
            "common - np.minimum(spared",
            "common - np.maximum(spared",
            "two at once spare what both of them can",
            ("tests/verifier/test_pipelines.py",),
        ),
        (
            FOLLOWING,
            "runs &= ~steps.paired",
            "runs &= True",
            "two at once occupy their processor once",
            ("tests/verifier/test_pipelines.py",),
        ),
        (
            HIDDEN,
            "*(self.free_at[resource] for resource in self.resources[step])",
            "0.0",
            "little overlaps on a processor add up",
            OF_HIDDEN,
        ),
        (
            HIDDEN,
            "begun = max(begun, self.written[key])",
            "pass",
            "little overlaps of who writes and who reads add up",
            OF_HIDDEN,
        ),
        (
            HIDDEN,
            "begun = max(begun, self._room(memory, time))",
            "pass",
            "bytes are there until they have been given back",
            OF_HIDDEN,
        ),
        (
            HIDDEN,
            "<= tolerance / (2 * count):",
            "<= tolerance:",
            "overlaps of less than an instant add up",
            OF_HIDDEN,
        ),
        (
            MEMORY,
            "(operation == WRITE) & ~reusing[step]",
            "operation == WRITE",
            "in place, outputs take over the inputs' bytes",
        ),
        (
            MEMORY,
            "during = np.maximum(0, written[runs] - dropped[runs])",
            "during = written[runs] - dropped[runs]",
            "what is dropped beyond the outputs stays until the end",
        ),
        (
            MEMORY,
            "parts.append((at, timeline.start_position[working], workspace))",
            "parts.append((at * 0, timeline.start_position[working], workspace))",
            "workspace lies where the task runs",
        ),
        (
            RESIDENCY,
            "np.where(part_reading, before >= amount, complete)",
            "np.where(part_reading, before > amount, complete)",
            "the last part may be moved",
        ),
        (
            RESIDENCY,
            "np.where(size > 0, after == size, stays)",
            "np.where(size > 0, after > 0, stays)",
            "a part of an output is no output",
        ),
        (
            RESIDENCY,
            "machine.memory_index.get(place.memory, 0)) * len(graph.values) + place.value",
            "machine.memory_index.get(place.memory, 0)) * 0 + place.value",
            "inputs are pinned where they lie",
        ),
        (
            TIMELINE,
            "tolerance = TOLERANCE * makespan",
            "tolerance = TOLERANCE",
            "the tolerance is a share of the makespan",
        ),
        (
            TIMELINE,
            "free_code = np.where(instantly, start_code + 2, last * block + count + listed)",
            "free_code = np.where(instantly, start_code + 2, last * block + listed)",
            "at an instant, all reads end before anything is freed",
        ),
        (
            TIMELINE,
            "np.minimum.at(pace,",
            "np.maximum.at(pace,",
            "the slowest processor sets the pace",
        ),
        (
            TIMELINE,
            "            current += 1\n            anchor = time\n",
            "            current += 1\n        anchor = time\n",
            "an instant reaches no further than the tolerance",
        ),
        *(
            (IN_TURN, right, wrong, breaks, OF_IN_TURN)
            for right, wrong, breaks in (
                ("there[1:] &= what[:-1] != FREE", "there[1:] &= True", "what was freed is not read"),
                ("wanting |= frees & ~used & ~is_drop[step]", "", "a run frees only what it reads or writes"),
                ("if not (start[1:] >= end[:-1]).all():", "if False:", "steps that overlap are looked at one by one"),
                ("before = min(2, begin - first)", "before = 0", "a part of the codes knows those before it"),
                (
                    "read[2:] |= used[2:]",
                    "read[2:] &= used[2:]",
                    "in place, what is read, written and freed makes room",
                ),
                ("if graph.pinned and pinned[steps.drop.items].any():", "if False:", "pinned inputs are not freed"),
                ("peaks[place.name].size > place.capacity", "peaks[place.name].size < 0", "a full memory is told"),
                ("(graph.once | ~graph.recomputable) & (count > 1)", "graph.once & (count > 1)", "what may run once"),
                ("(codes & 3 != FREE).all()", "True", "an output is there at the end"),
                ("np.subtract.at(release, step, size)", "pass", "what is made again gives its room back"),
            )
        ),
    ],
)

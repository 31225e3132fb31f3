"""Faults of the verifier."""

from tests.mutants.fault import faults_of

REFEREE, MEMORY, RESIDENCY, TIMELINE = "referee.py", "memory.py", "residency.py", "timeline.py"

FAULTS = faults_of(
    "solver/remat/verifier",
    ("tests/verifier",),
    [
        (
            REFEREE,
            "released = np.maximum.accumulate(timeline.release_position[mine])",
            "released = timeline.release_position[mine]",
            "a long step occupies its processor beyond short ones",
        ),
        (
            REFEREE,
            "not 0 < amount < size",
            "not 0 < amount <= size",
            "a part is less than the whole",
        ),
        (
            REFEREE,
            "single = graph.once | ~graph.recomputable",
            "single = graph.once",
            "what is not recomputable runs once",
        ),
        (
            REFEREE,
            "np.flatnonzero(single & (run_count > 1))",
            "np.flatnonzero(single & (run_count > 2))",
            "a second run may be one too many",
        ),
        (
            REFEREE,
            "(np.diff(rows[order]) == 0) & (np.diff(items[order]) == 0)",
            "np.diff(items[order]) == 0",
            "two steps may drop the same value",
        ),
        (
            REFEREE,
            "or len(set(on)) < len(on):",
            "or len(set(on)) < 1:",
            "no processor is named twice",
        ),
        (
            REFEREE,
            "sizes = np.where(amount < 0, graph.size[steps.item[mine]], amount)",
            "sizes = graph.size[steps.item[mine]]",
            "a part counts as a part in what is transferred",
        ),
        (
            REFEREE,
            "np.concatenate((begin[:1], np.maximum.accumulate(end)[:-1]))",
            "np.concatenate((begin[:1], end[:-1]))",
            "overlapping runs count once in the overlap",
        ),
        (
            MEMORY,
            "add((operation == WRITE) & ~of_reusing, size)",
            "add(operation == WRITE, size)",
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
            "np.flatnonzero((use > capacity) & adds)",
            "np.flatnonzero((use >= capacity) & adds)",
            "a full memory is not overfull",
        ),
        (
            MEMORY,
            "add(operation == WRITE_END, -residency.before)",
            "add((operation == WRITE_END) & of_reusing, -residency.before)",
            "the copy that a write replaces goes",
        ),
        (
            MEMORY,
            "parts.append((at, timeline.start_position[runs], workspace))",
            "parts.append((at * 0, timeline.start_position[runs], workspace))",
            "workspace lies where the task runs",
        ),
        (
            RESIDENCY,
            "(readers - own > 0)",
            "(readers > 0)",
            "a task may write what it reads",
        ),
        (
            RESIDENCY,
            "tell(freeing & (readers > 0),",
            "tell(freeing & (readers > 1),",
            "nothing is dropped while it is read",
        ),
        (
            RESIDENCY,
            "np.where(part_reading, before >= amount, complete)",
            "np.where(part_reading, before > amount, complete)",
            "the last part may be moved",
        ),
        (
            RESIDENCY,
            "tell(part_writing & (before + amount > size),",
            "tell(part_writing & (before + amount > 2 * size),",
            "parts do not exceed the whole",
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
            "took = ends.latency + moved / float(ends.bandwidth)",
            "took = moved / float(ends.bandwidth)",
            "a transfer takes the latency, too",
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
    ],
)

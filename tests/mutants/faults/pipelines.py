"""Faults of pipelines: task graphs, step ends, patterns, and devices that share stages."""

from tests.mutants.fault import faults_of

LOWERING, CLOSING, ORDERS = "instance/lowering/pipeline.py", "schedule/step_end.py", "schedule/orders.py"
MACHINE, SHARDED, TENSOR = "graph/machine.py", "schedule/data_parallel.py", "instance/tensor.py"
MODULO, INSTANCE = "verifier/modulo.py", "instance/pipeline.py"
OF_PATTERNS = ("tests/verifier/test_patterns.py",)
OF_REPLICAS = ("tests/algorithms/parallel/pipeline/test_replicas.py",)
OF_GROUPS = ("tests/schedule/test_tensor.py",)
OF_PLANS = ("tests/verifier/test_pipelines.py",)

FAULTS = faults_of(
    "solver/remat",
    ("tests/instance/test_pipelines.py", *OF_PLANS),
    [
        (
            LOWERING,
            "work.saved_size - min(work.saved_size, work.weight_saved_size)",
            "work.saved_size",
            "what the second half keeps is not there twice",
        ),
        (LOWERING, "max(0, later - saved)", "later", "the second half keeps a part of what was saved"),
        (
            LOWERING,
            "gradients = [self.y[layer, reader] for reader in self.readers[layer]]",
            "gradients = [self.y[layer, reader] for reader in self.readers[layer][:1]]",
            "a backward reads the gradients of all readers",
        ),
        (
            LOWERING,
            "return lcm(self.parts[layer], *(self.parts[other] for other in others))",
            "return self.parts[layer]",
            "pieces are for whoever reads them",
            OF_REPLICAS,
        ),
        (LOWERING, "(k < size % each)", "0", "pieces add up to all bytes", OF_REPLICAS),
        (
            LOWERING,
            "np.tril_indices(self.slices, -1)",
            "np.tril_indices(self.slices, -2)",
            "slices read the last one",
        ),
        (LOWERING, "required=once.copy(),", "required=~once,", "all backwards must run"),
        (MACHINE, "turns * (members - 1) * slowest", "turns * members * slowest", "rounds of a ring"),
        (MACHINE, "slowest = max(slowest, time)", "slowest = time", "the slowest link of a ring counts"),
        (
            SHARDED,
            "turns = 1 if self.ranks.zero else 2",
            "turns = 2",
            "ranks that share states out reduce once",
            OF_PLANS,
        ),
        (SHARDED, "BUFFERS = 2", "BUFFERS = 3", "a device has two buckets at most", OF_PLANS),
        (
            "instance/data_parallel.py",
            "return size - size // self.data",
            "return size // self.data",
            "a rank sends what is not its own share",
            ("tests/algorithms/offload/weights/test_zero.py",),
        ),
        (
            CLOSING,
            "layer in reversed(own.layers)",
            "layer in own.layers",
            "updates begin with the last layer",
            OF_PLANS,
        ),
        (
            CLOSING,
            "Phase.W if self.layers[layer].is_split else Phase.B",
            "Phase.B",
            "gradients are there after the second half",
            OF_PLANS,
        ),
        (
            ORDERS,
            "if other.parts != own.parts:",
            "if other.parts > own.parts:",
            "a layer is shared in one way",
            OF_REPLICAS,
        ),
        (TENSOR, "turns=2", "turns=1", "all add up what each gathers", OF_GROUPS),
        (
            ORDERS,
            "zip(own, [*own[1:], own[0]], strict=True)",
            "zip(own, own, strict=True)",
            "a ring goes to the next device",
            OF_GROUPS,
        ),
        ("verifier/deadlock.py", "if other != group and", "if False and", "groups run nothing else", OF_GROUPS),
        (
            MODULO,
            "two = min(2, in_flight)",
            "two = 2",
            "one in flight needs one version",
            OF_PATTERNS,
        ),
        (
            MODULO,
            "return min(1, in_flight - 1)",
            "return in_flight - 1",
            "double weights are one change late",
            OF_PATTERNS,
        ),
        (
            MODULO,
            "for phase in (Phase.F, Phase.BW)",
            "for phase in (Phase.F, Phase.F)",
            "a micro-batch is in flight until its backward ends",
            OF_PATTERNS,
        ),
        (MODULO, "if kept < wanted:", "if kept < 0:", "a stage keeps the versions that it needs", OF_PATTERNS),
        (
            MODULO,
            "pairwise([*longer, (longer[0][0] + period, 0)])",
            "pairwise(longer)",
            "the last step of a period ends before the first of the next",
            OF_PATTERNS,
        ),
        (
            "placement/modulo.py",
            "if turns[place].target != memory:",
            "if turns:",
            "a copy does not drop what it brings",
            OF_PATTERNS,
        ),
        (
            INSTANCE,
            "(count if work else 1, works[index])",
            "(1, works[index])",
            "bounds count all parts",
            OF_REPLICAS,
        ),
    ],
) + faults_of(
    "algorithms/remat_algorithms/parallel/pipeline",
    OF_REPLICAS,
    [
        (
            "replicas.py",
            "batch if self.parts else batch * count + k",
            "batch if self.parts else batch * count",
            "in turns each micro-batch runs on one device",
        ),
        (
            "replicas.py",
            "any(len(group) > 1 for group in groups)",
            "False",
            "devices of a group are alike",
        ),
        (
            "planners/planner_input.py",
            "if best is None or _time(found) < _time(best):",
            "if best is None:",
            "the quickest way to share stages out is taken",
        ),
        (
            "planners/planner_input.py",
            "for peak, room in zip(peaks, everywhere, strict=True) if room is not None)",
            "for peak, room in zip(peaks[:1], everywhere, strict=False) if room is not None)",
            "every device has to have room",
            ("tests/algorithms/parallel/pipeline/planners/test_planners.py",),
        ),
    ],
)

"""Faults of compression ratios: repeated samples, copies of streams, joins, and placements on devices."""

from tests.mutants.fault import faults_of

SAMPLES, STREAMS, JOINS = "graph/samples.py", "placement/streams.py", "instance/lowering/join.py"
CLUSTER, MODEL = "instance/cluster.py", "parallel/placement/model.py"
OF_STREAMS = ("tests/algorithms/parallel/placement/test_value_ratios.py",)
OF_JOINS = ("tests/algorithms/offload/test_value_ratios.py::test_chains_of_a_join_have_ratios",)
OF_LINKS = ("tests/algorithms/parallel/pipeline/test_compressed_links.py",)

FAULTS = (
    *faults_of(
        "solver/remat",
        OF_STREAMS,
        [
            (
                SAMPLES,
                "for copy in self.values(np.full(count, value), np.arange(count)).tolist()",
                "for copy in self.values(np.full(count, value), np.arange(count)).tolist()[:1]",
                "each sample has the ratio of a value",
            ),
            (
                STREAMS,
                "length = copy_held(self.graph, self.machine, value, source, target)",
                "length = self.machine.links[link].time(self.size[value]) - self.machine.links[link].delay",
                "a copy of a stream takes the time of its value's ratio",
            ),
            (
                JOINS,
                "return {first + value: ratio for chain, first in chains",
                "return {value: ratio for chain, _ in list(chains)[1:]",
                "the chains of a join have ratios",
                OF_JOINS,
            ),
            (
                CLUSTER,
                "bandwidth=self.bandwidth if packed is None else packed.through,",
                "bandwidth=self.bandwidth,",
                "links of a cluster compress",
                OF_LINKS,
            ),
        ],
    ),
    *faults_of(
        "algorithms/remat_algorithms",
        OF_STREAMS,
        [
            (
                MODEL,
                "    return graph.link_for(link, value).time(int(graph.size[value]))\n",
                "    return link.time(int(graph.size[value]))\n",
                "placements count the ratio of a value",
            ),
        ],
    ),
)

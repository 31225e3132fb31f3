"""Catalogue of the algorithms for pipelines: metadata only."""

from __future__ import annotations

from remat.plugin import Algorithm


def _named(
    name: str, function: str, summary: str, reference: str, options: str = "", *, module: str = "named"
) -> Algorithm:
    return Algorithm(
        name=name,
        solver=f"remat_algorithms.parallel.pipeline.{module}:{function}",
        options=f"remat_algorithms.parallel.pipeline.named:{options}" if options else "",
        kinds=("pipeline",),
        summary=summary,
        guarantee="strategy",
        within=f"the {name} schedule of evenly cut layers",
        complexity="O(operations log operations)",
        reference=reference,
        several_memories=True,
        any_links=True,
        cheap=("pipeline",),
    )


def _planner(name: str, place: str, options: str, summary: str, reference: str, *, auto: bool = False) -> Algorithm:
    module, _, function = place.partition(":")
    home = f"remat_algorithms.parallel.pipeline.planners.{module}"
    shared = "remat_algorithms.parallel.pipeline.planners.planning:StageOptions"
    return Algorithm(
        name=name,
        solver=f"{home}:{function}",
        options=f"{home}:{options}" if options else shared,
        kinds=("pipeline",),
        summary=summary,
        guarantee="heuristic",
        complexity="O(devices * layers^2), and simulations",
        reference=reference,
        several_memories=True,
        any_links=True,
        cheap=("pipeline",) if auto else (),
    )


ALGORITHMS: tuple[Algorithm, ...] = (
    _named("gpipe", "solve_gpipe", "all forwards, then all backwards", "Huang et al. 2019"),
    _named("1f1b", "solve_1f1b", "one forward, one backward, after the fewest forwards", "Fan et al. 2021"),
    _named("eager-1f1b", "solve_eager", "1F1B with twice the forwards first, to hide hops", "Zhuang et al. 2023"),
    _named(
        "interleaved-1f1b",
        "solve_interleaved",
        "1F1B with several chunks of the model on each device",
        "Narayanan et al. 2021",
        "ChunkOptions",
    ),
    _named("chimera", "solve_chimera", "two pipelines in opposite directions", "Li and Hoefler 2021"),
    _named("gems", "solve_gems", "micro-batches from both ends in turns, one in flight a device", "Jain et al. 2020"),
    _named("dualpipe", "solve_dualpipe", "two directions, forwards and backwards at once", "DeepSeek-AI 2024"),
    _named("dualpipev", "solve_dualpipev", "DualPipe folded: two chunks a device in a V", "DeepSeek-AI 2025"),
    _named("zb-h1", "solve_zb_h1", "zero bubble, in the memory of 1F1B", "Qi et al. 2024"),
    _named("zb-h2", "solve_zb_h2", "zero bubble, in up to twice the memory of 1F1B", "Qi et al. 2024"),
    _named("zb-v", "solve_zb_v", "two chunks a device in a V, in the memory of 1F1B", "Qi et al. 2024"),
    _named("v-half", "solve_v_half", "two chunks a device in a V, in half the memory of 1F1B", "Qi et al. 2024b"),
    Algorithm(
        name="pipe-search",
        solver="remat_algorithms.parallel.pipeline.searching:solve_search",
        options="remat_algorithms.parallel.pipeline.searching:SearchOptions",
        kinds=("pipeline",),
        summary="list scheduling and local search over orders, under the memory of each device",
        guarantee="heuristic",
        complexity="O(moves * operations * stages)",
        reference="after Liu et al. 2025 and Tessel (Lin et al. 2024)",
        several_memories=True,
        any_links=True,
        anytime=True,
    ),
    Algorithm(
        name="pipe-exact",
        solver="remat_algorithms.parallel.pipeline.searching:solve_exact",
        options="remat_algorithms.parallel.pipeline.searching:ExactOptions",
        kinds=("pipeline",),
        summary="constraint program over orders, under the memory of each device, with a bound",
        guarantee="exact",
        within="orders of evenly cut layers on one placement",
        complexity="exponential",
        reference="this project",
        several_memories=True,
        any_links=True,
        anytime=True,
    ),
    Algorithm(
        name="tessel",
        solver="remat_algorithms.parallel.pipeline.tessel:solve",
        options="remat_algorithms.parallel.pipeline.tessel:TesselOptions",
        kinds=("pipeline",),
        summary="the smallest repetend that fits, then warm-up and drain",
        guarantee="heuristic",
        complexity="exponential in the operations of a micro-batch",
        reference="Lin et al. 2024",
        several_memories=True,
        any_links=True,
        anytime=True,
    ),
    Algorithm(
        name="1f1b-star",
        solver="remat_algorithms.parallel.pipeline.streams:solve_star",
        options="remat_algorithms.parallel.pipeline.streams:StarOptions",
        kinds=("pipeline",),
        summary="the least period of 1F1B* that fits, for micro-batches without end",
        guarantee="heuristic",
        complexity="O(moves * (layers + stages log period))",
        reference="Beaumont et al. 2021",
        several_memories=True,
        any_links=True,
    ),
    _named(
        "pipedream",
        "solve_pipedream",
        "1F1B without end, a version of the parameters for each micro-batch in flight",
        "Narayanan et al. 2019",
        module="streams",
    ),
    _named(
        "pipedream-2bw",
        "solve_2bw",
        "1F1B without end, two versions of the parameters",
        "Narayanan et al. 2021b",
        module="streams",
    ),
    _named(
        "pipemare",
        "solve_pipemare",
        "1F1B without end, one version of the parameters",
        "Yang et al. 2021",
        module="streams",
    ),
    _planner(
        "pipedream-dp",
        "pipedream:solve_dp",
        "",
        "cuts for the least slowest stage or transfer",
        "Narayanan et al. 2019",
    ),
    _planner(
        "2bw-plan", "pipedream:solve_2bw", "", "depth and cuts for the least slowest stage", "Narayanan et al. 2021"
    ),
    _planner(
        "dapple-plan",
        "dapple_plan:solve",
        "JudgedOptions",
        "depth and cuts for the least makespan of 1F1B",
        "Fan et al. 2021",
        auto=True,
    ),
    _planner(
        "varuna",
        "varuna:solve",
        "",
        "depth by simulation, backwards when they are ready",
        "Athlur et al. 2022",
        auto=True,
    ),
    _planner("hetpipe", "hetpipe:solve", "", "cuts for devices of several types and memories", "Park et al. 2020"),
    _planner(
        "pipe-torch",
        "pipe_torch:solve",
        "",
        "cuts, and the order of devices of several types",
        "Zhan and Zhang 2019",
        auto=True,
    ),
    _planner(
        "ftpipe",
        "ftpipe:solve",
        "BlockOptions",
        "blocks of layers dealt out, several stages a device",
        "Eliad et al. 2021",
        auto=True,
    ),
    _planner(
        "chimera-plan", "chimera_plan:solve", "", "depth of Chimera's schedule by simulation", "Li and Hoefler 2021"
    ),
    _named("v-min", "solve_v_min", "two chunks a device in a V, in a third of the memory of 1F1B", "Qi et al. 2024b"),
)

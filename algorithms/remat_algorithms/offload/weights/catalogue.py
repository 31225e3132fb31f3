"""Catalogue of the algorithms for chains with parameters: metadata only."""

from __future__ import annotations

from itertools import combinations

from remat.plugin import Algorithm, Trial
from remat_algorithms.kit.catalogue import GENERAL

_HERE = "remat_algorithms.offload.weights"

_SEVERAL_MEMORIES = Trial(
    when="parameters, and several memories", applies="remat_algorithms.offload.applicability:several_memories"
)
_ENDLESS = Trial(
    when="steps that repeat indefinitely, and several memories",
    applies="remat_algorithms.offload.applicability:endless",
)

ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        name="weight-offload",
        solver=f"{_HERE}.weight_offload:solve",
        options=f"{_HERE}.weight_offload:WeightOffloadOptions",
        kinds=("chain",),
        summary="after Beaumont et al.: chooses which parameters to offload between F and B, and where updates run",
        guarantee="heuristic",
        complexity="O(evaluations L log L)",
        needs_slack="the search takes another path at another budget",
        reference="Beaumont et al. 2022",
        deviates="this project's search for the paper's choice of stages; allows recomputation of forwards",
        several_memories=True,
        devices=True,
        ranks=True,
        anytime=True,
        several_processors=True,
        trials=(_SEVERAL_MEMORIES,),
    ),
    Algorithm(
        name="offmate",
        solver=f"{_HERE}.offmate:solve",
        options=f"{_HERE}.offmate:OffMateOptions",
        kinds=("chain",),
        summary="offloads parameters, optimizer states and saved tensors by rounding a linear program",
        guarantee="heuristic",
        complexity="linear programs of O(L) columns, and O(L log L) for each evaluation",
        needs_slack="the search takes another path at another budget",
        reference="Zhao et al. 2024 (OffMate)",
        deviates="rounds shares of tensors to whole values; links have one queue; a local search follows",
        requires=("ortools",),
        several_memories=True,
        devices=True,
        open_places=True,
        anytime=True,
        several_processors=True,
        trials=(_SEVERAL_MEMORIES,),
    ),
    Algorithm(
        name="zero",
        solver=f"{_HERE}.zero_family:solve_zero",
        options=f"{_HERE}.zero_family:ZeroOptions",
        kinds=("chain",),
        summary="after Rajbhandari et al.: keeps everything on the device; shards parameters, gradients and states "
        "over ranks",
        guarantee="heuristic",
        complexity="O(L log L)",
        reference="Rajbhandari et al. 2020",
        deviates="shards follow the paper; buckets and their fragmentation are not modelled",
        several_memories=True,
        devices=True,
        ranks=True,
        streams=True,
        several_processors=True,
        trials=tuple(
            Trial(
                when="sharded parameters, parameters without a fixed memory, or steps that repeat indefinitely",
                applies="remat_algorithms.offload.applicability:ranks_or_open",
                options=dict.fromkeys(flags, True),
            )
            for count in range(4)
            for flags in combinations(("keep", "early", "recompute"), count)
        ),
    ),
    Algorithm(
        name="zero-offload",
        solver=f"{_HERE}.zero_family:solve_zero_offload",
        options=f"{_HERE}.zero_family:OffloadOptions",
        kinds=("chain",),
        summary="after Ren et al.: parameters stay on the device; the host holds gradients and states, and runs "
        "updates",
        guarantee="heuristic",
        complexity="O(L log L)",
        needs_slack="the bytes of each run count whenever in the run its values arrive or leave",
        reference="Ren et al. 2021",
        deviates="updates are delayed by one step only if the instance has a staleness of 1",
        several_memories=True,
        devices=True,
        ranks=True,
        streams=True,
        several_processors=True,
        trials=(_ENDLESS,),
    ),
    Algorithm(
        name="zero-infinity",
        solver=f"{_HERE}.zero_family:solve_zero_infinity",
        options=f"{_HERE}.zero_family:InfinityOptions",
        kinds=("chain",),
        summary="after Rajbhandari et al.: fetches parameters and states stage by stage from the host or NVMe",
        guarantee="heuristic",
        complexity="O(L log L)",
        needs_slack="the bytes of each run count whenever in the run its values arrive or leave",
        reference="Rajbhandari et al. 2021",
        deviates="fetches parameters one stage ahead; no tiling of operators",
        several_memories=True,
        devices=True,
        ranks=True,
        streams=True,
        several_processors=True,
        trials=(_ENDLESS,),
    ),
    Algorithm(
        name="granular-offload",
        solver=f"{_HERE}.granular_offload:solve",
        options=f"{_HERE}.granular_offload:GranularOptions",
        kinds=("chain",),
        summary="after Lin et al.: offloads parameters and optimizer states of as few stages as possible to the host",
        guarantee="heuristic",
        complexity="O(L log^2 L)",
        reference="Lin et al. 2021",
        deviates="tries three orders of stages for the fewest that fit; the paper states a ratio",
        several_memories=True,
        devices=True,
        ranks=True,
        streams=True,
        several_processors=True,
        trials=(
            Trial(
                when="parameters without a fixed memory", applies="remat_algorithms.offload.applicability:open_places"
            ),
        ),
    ),
    Algorithm(
        name="l2l",
        solver=f"{_HERE}.zero_family:solve_l2l",
        options=f"{_HERE}.zero_family:LayerToLayerOptions",
        kinds=("chain",),
        summary="after Pudipeddi et al.: fetches parameters stage by stage, and offloads activations",
        guarantee="heuristic",
        complexity="O(L log L)",
        needs_slack="the bytes of each run count whenever in the run its values arrive or leave",
        reference="Pudipeddi et al. 2020",
        deviates="one micro-batch; the paper runs several through each layer",
        several_memories=True,
        devices=True,
        ranks=True,
        streams=True,
        several_processors=True,
        trials=(Trial(when="parameters", applies="remat_algorithms.kit.applicability:has_parameters"),),
        covered_by=GENERAL,
    ),
)

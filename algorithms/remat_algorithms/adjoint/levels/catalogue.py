"""Catalogue of the algorithms for adjoints on several storage levels: metadata only."""

from __future__ import annotations

from remat.plugin import Algorithm, Trial

ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        name="h-revolve",
        solver="remat_algorithms.adjoint.levels.h_revolve:solve",
        kinds=("adjoint",),
        summary="equal steps on any number of storage levels, by dynamic programming",
        guarantee="exact",
        within="hierarchical checkpointing schedules",
        complexity="O(steps^2 sum of slots), in O(steps sum of slots) array operations",
        reference="Herrmann & Pallez 2020",
        several_memories=True,
        trials=(
            Trial(
                when="equal steps, several levels, or checkpoints that take time",
                applies="remat_algorithms.adjoint.applicability:levels",
                early=True,
            ),
        ),
        many="remat_algorithms.adjoint.applicability:levels",
    ),
    Algorithm(
        name="disk-revolve",
        solver="remat_algorithms.adjoint.levels.disk_revolve:solve",
        kinds=("adjoint",),
        summary="equal steps on a bounded level and an unbounded disk, disk checkpoints read many times",
        guarantee="exact",
        within="disk-revolve schedules",
        complexity="O(steps^2 slots), in O(steps slots) array operations",
        reference="Aupy, Herrmann, Hovland & Robert 2016",
        options="remat_algorithms.adjoint.levels.disk_revolve:DiskRevolveOptions",
        several_memories=True,
        covered_by=("adjoint-best",),
    ),
    Algorithm(
        name="periodic-disk-revolve",
        solver="remat_algorithms.adjoint.levels.disk_revolve:solve_periodic",
        stream="remat_algorithms.adjoint.levels.disk_revolve:stream_periodic",
        kinds=("adjoint",),
        summary="disk checkpoints at the best constant distance, in closed form",
        guarantee="heuristic",
        within="schedules with periodic disk checkpoints",
        complexity="O(steps of the schedule)",
        reference="Aupy & Herrmann 2017",
        several_memories=True,
        trials=(
            Trial(
                when="equal steps, several levels, too many for a table",
                applies="remat_algorithms.adjoint.applicability:long_levels",
                early=True,
            ),
        ),
    ),
    Algorithm(
        name="multistage",
        solver="remat_algorithms.adjoint.levels.multistage:solve",
        stream="remat_algorithms.adjoint.levels.multistage:stream",
        kinds=("adjoint",),
        summary="Revolve on all levels together, its most used checkpoints in the first",
        guarantee="heuristic",
        within="checkpointing schedules with a number of slots",
        complexity="O(steps of the schedule)",
        reference="Stumm & Walther 2009",
        several_memories=True,
        covered_by=("adjoint-best",),
    ),
    Algorithm(
        name="two-level",
        solver="remat_algorithms.adjoint.levels.two_level:solve",
        stream="remat_algorithms.adjoint.levels.two_level:stream",
        kinds=("adjoint",),
        summary="a disk checkpoint every few steps, Revolve inside the blocks",
        guarantee="heuristic",
        within="schedules with periodic disk checkpoints",
        complexity="O(steps of the schedule)",
        reference="Pringle et al. 2016",
        deviates="the first sweep ends where the last block begins; a default for the distance of disk checkpoints",
        options="remat_algorithms.adjoint.levels.two_level:TwoLevelOptions",
        several_memories=True,
        trials=(
            Trial(
                when="equal steps, several levels, too many for a table",
                applies="remat_algorithms.adjoint.applicability:long_levels",
                early=True,
            ),
        ),
    ),
    Algorithm(
        name="two-level-async",
        solver="remat_algorithms.adjoint.levels.two_level_async:solve",
        kinds=("adjoint",),
        summary="disk checkpoints written and prefetched while computing, Revolve in memory inside the blocks",
        guarantee="heuristic",
        within="schedules with periodic disk checkpoints",
        complexity="O(steps of the schedule)",
        reference="Schanen, Marin, Anitescu & Zhang 2016",
        deviates="on machines built from `storage`, reads do not overlap: the working memory has no third state",
        options="remat_algorithms.adjoint.levels.two_level_async:TwoLevelAsyncOptions",
        several_memories=True,
        trials=(
            Trial(
                when="equal steps, several levels, some beside the processor or too many for a table",
                applies="remat_algorithms.adjoint.applicability:levels_without_table",
                early=True,
            ),
        ),
    ),
)

"""The zoo: the catalogue of built-in algorithms, metadata only; one family a folder."""

from __future__ import annotations

from remat_algorithms.adjoint.catalogue import ALGORITHMS as ADJOINT
from remat_algorithms.chain.catalogue import ALGORITHMS as CHAIN
from remat_algorithms.dag.anytime.catalogue import ALGORITHMS as DAG_AUTO
from remat_algorithms.dag.catalogue import ALGORITHMS as DAG
from remat_algorithms.dag.exact.catalogue import ALGORITHMS as DAG_EXACT
from remat_algorithms.dag.order.catalogue import ALGORITHMS as ORDER
from remat_algorithms.dag.programs.catalogue import ALGORITHMS as DAG_ILP
from remat_algorithms.joint.catalogue import ALGORITHMS as JOINT
from remat_algorithms.layout.catalogue import ALGORITHMS as LAYOUT
from remat_algorithms.offload.catalogue import ALGORITHMS as OFFLOAD
from remat_algorithms.parallel.catalogue import ALGORITHMS as PARALLEL
from remat_algorithms.parallel.pipeline.catalogue import ALGORITHMS as PIPELINE
from remat_algorithms.parallel.placement.catalogue import ALGORITHMS as PLACEMENT
from remat_algorithms.tree.catalogue import ALGORITHMS as TREE
from remat_algorithms.tree.out_of_core.catalogue import ALGORITHMS as OUT_OF_CORE

catalogue = (
    *CHAIN,
    *ADJOINT,
    *DAG,
    *DAG_AUTO,
    *DAG_ILP,
    *DAG_EXACT,
    *ORDER,
    *TREE,
    *OUT_OF_CORE,
    *PARALLEL,
    *PIPELINE,
    *PLACEMENT,
    *OFFLOAD,
    *JOINT,
    *LAYOUT,
)

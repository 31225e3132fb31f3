"""What pictures of a schedule show, as figures of bounded size; `plot` and `page` draw them.

``stages`` and ``reversal`` are for chains and adjoints, ``icicle`` for trees, ``occupancy`` for every task graph.
"""

"""Data of bounded size for pictures of a schedule; `plot` and `page` draw them.

``stages`` and ``reversal`` are for chains and adjoints, ``icicle`` for trees, ``occupancy`` for every task graph.
"""

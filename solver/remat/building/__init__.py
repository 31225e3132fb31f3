"""Builders: instances from arrays, sequences and graphs in Python, without a document in between.

The builders are `remat.chain`, `remat.dag`, `remat.tree`, `remat.adjoint`, `remat.join` and `remat.pipeline`;
`remat.machine` and `remat.device` describe the hardware. Each builder converts its arguments to the instance format,
whose readers check them. An `InstanceError` names the invalid argument, the index and the value.
"""

"""Builders: instances from arrays, sequences and graphs in Python, without a document in between.

`remat.chain`, `remat.dag`, `remat.tree`, `remat.adjoint`, `remat.join`, `remat.pipeline`, and `remat.machine` and
`remat.device` for what they run on. Each puts its arguments into the form of the instance format, whose readers check
them; whatever is wrong is an `InstanceError` that names the argument, the index and the value.
"""

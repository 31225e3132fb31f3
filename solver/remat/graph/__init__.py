"""The target of every lowering: the task graph, the machine, arrays of chains, and simple bounds."""

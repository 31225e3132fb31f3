"""What every instance lowers to: the task graph, the machine, arrays of chains, and simple bounds."""

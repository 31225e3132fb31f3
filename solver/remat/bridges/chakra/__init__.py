"""Chakra execution traces, in the JSON of PyTorch's `ExecutionTraceObserver`."""

"""Pipeline schedules as CSV files of PyTorch's `torch.distributed.pipelining`: a row per rank, a cell per action."""

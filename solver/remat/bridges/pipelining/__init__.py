"""Pipeline schedules as CSV files of PyTorch's `torch.distributed.pipelining`: a row a rank, a cell an action."""

"""Two public JSON formats of profiles: layer graphs for accelerators and CPUs, and tensor-parallel layers."""

"""Two public JSON formats of profiles for placement: layer graphs with accelerators and CPUs, and tensor-parallel ones."""

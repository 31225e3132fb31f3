"""Lower bounds for rematerialisation: by gaps, blocks and lineages, for one order or all."""

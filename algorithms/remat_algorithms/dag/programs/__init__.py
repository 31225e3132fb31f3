"""Rematerialization on task graphs by mathematical programming: `checkmate`, `checkmate-lp`, `moccasin`."""

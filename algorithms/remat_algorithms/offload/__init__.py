"""Offloading to memories behind links, alone and together with recomputation."""

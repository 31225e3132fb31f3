"""Independent oracles: slow, plain twins of the lowering, the placement, the verifier and the exact algorithms.

They read JSON documents with bare numbers, import nothing from the packages under test, and prefer the obvious
to the fast. A disagreement with the product is a bug in one of the two, never something to be reconciled by
sharing code.
"""

"""Steps whose reverse step reads a stored tape: what is kept may be states, tapes, or both."""

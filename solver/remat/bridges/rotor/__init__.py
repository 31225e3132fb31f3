"""Chains of rotor, as its class `Chain` prints them."""

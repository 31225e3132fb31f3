"""Offloading: values that leave for a larger memory and come back while the computation goes on."""

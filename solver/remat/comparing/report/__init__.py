"""Presentation of a comparison: tables for the terminal, and one HTML page."""

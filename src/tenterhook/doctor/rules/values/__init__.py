"""Implement the rules for the values that a hook stores, receives and returns."""

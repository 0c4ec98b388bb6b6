"""Implement the rules for hooks that are not installed or do not fire."""

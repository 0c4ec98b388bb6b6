"""Calls hooks from compiled graphs, and drops graphs that no longer match the hooks."""

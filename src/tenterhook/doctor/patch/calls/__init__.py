"""Observe the calls of chosen code, and find out which hook a call belongs to."""

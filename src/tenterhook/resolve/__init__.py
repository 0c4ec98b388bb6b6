"""Resolve a plan on a model into a Resolution. The model is read and not changed."""

"""Resolve a plan against a model. The result is a Resolution, and the model is not changed."""

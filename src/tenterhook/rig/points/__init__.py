"""Registers hooks with PyTorch, with one file for each family of points."""

"""Registers hooks with PyTorch. Each family of points has its own file."""

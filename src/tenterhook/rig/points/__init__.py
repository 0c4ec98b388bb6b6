"""Registers hooks with PyTorch. Each group of related points has its own file."""

"""Watching PyTorch's register functions for a while, and putting them back."""

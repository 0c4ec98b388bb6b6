"""Patch the PyTorch functions that an exam watches, and restore them when the exam ends."""

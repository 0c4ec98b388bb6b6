"""Patch the functions of PyTorch that an exam watches, and restore them when the exam ends."""

"""Simulate an accelerator on the CPU build of torch, and count what moves between it and the host."""

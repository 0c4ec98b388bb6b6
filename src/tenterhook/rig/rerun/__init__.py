"""Run a step again, with every operation and every module watched."""

"""Hold what an exam observes of hooks, models and the program. Nothing here patches PyTorch or makes findings."""

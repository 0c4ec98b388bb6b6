"""Hold an exam's observations of hooks, models and the program. The rules derive findings from these observations."""

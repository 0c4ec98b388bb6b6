"""Hold an exam's observations of hooks, models and the program. The rules make findings from these observations."""

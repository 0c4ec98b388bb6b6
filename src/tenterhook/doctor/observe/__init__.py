"""Store an exam's observations about hooks, models and the program. The rules derive findings from them."""

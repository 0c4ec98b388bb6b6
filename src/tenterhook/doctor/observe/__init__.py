"""What was seen of hooks, models and the program: data, and how it is looked up."""

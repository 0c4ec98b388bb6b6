"""Read the code of hooks and programs, without running it."""

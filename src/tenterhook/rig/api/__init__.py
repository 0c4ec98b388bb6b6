"""Define the functions that users call: `attach`, the one-line functions and `inventory`."""

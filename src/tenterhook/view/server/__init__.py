"""Serve the user interface and the data of runs to browsers on this machine."""

"""Defines the objects that an attached hook uses at run time."""

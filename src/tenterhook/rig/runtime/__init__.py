"""Holds the objects that an attached hook uses while it runs."""

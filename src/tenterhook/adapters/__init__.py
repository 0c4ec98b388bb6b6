"""Connect tenterhook to the plug-in points of other frameworks: trainers, pytest, and unmodified scripts."""

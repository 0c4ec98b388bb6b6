"""Other frameworks' plug-in points, each to a few of our functions."""

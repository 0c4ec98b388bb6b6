"""Save a rig's state as plain tensors, and load it again."""

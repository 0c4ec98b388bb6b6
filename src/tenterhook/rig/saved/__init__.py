"""A rig's state as plain tensors: schema, format, writer, reader, loader."""

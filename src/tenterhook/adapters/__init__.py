"""Connect tenterhook to trainers, to pytest and to unmodified scripts."""

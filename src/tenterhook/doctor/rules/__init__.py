"""Turn the recorded observations into findings, with one file for each family of codes."""

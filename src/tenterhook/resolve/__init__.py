"""A plan on a model becomes a Resolution. The model is read, never touched."""

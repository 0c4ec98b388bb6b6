"""Record the values that hooks receive, return and store."""

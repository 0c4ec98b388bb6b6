"""Read what a page shows about a run: what it contains, and its numbers by target and step."""

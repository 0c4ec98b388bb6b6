"""Find out what went wrong in the training itself, and say it in one sentence."""

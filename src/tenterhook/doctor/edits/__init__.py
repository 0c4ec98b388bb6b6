"""Edit the text of a program, so that a finding can carry a patch."""

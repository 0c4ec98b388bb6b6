"""The rules: from what was seen to findings, one file for each family of codes."""

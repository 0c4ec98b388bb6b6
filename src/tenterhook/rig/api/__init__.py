"""What users call: attach, the one-line forms, the inventory."""

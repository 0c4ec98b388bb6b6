"""What an attached hook carries while it runs."""

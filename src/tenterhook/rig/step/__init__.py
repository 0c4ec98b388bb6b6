"""Run hooks around an optimizer's step, and end steps."""

"""Run hooks before and after an optimizer's step, and end steps."""

"""Turn recorded observations into findings. Each module contains the rules for a group of related codes."""

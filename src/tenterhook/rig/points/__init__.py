"""What PyTorch calls, one file for each family of points."""

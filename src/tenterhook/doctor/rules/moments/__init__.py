"""Implement the rules for hooks that fire at the wrong moment, too often, or in unexpected circumstances."""

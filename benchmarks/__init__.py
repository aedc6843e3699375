"""Measurements, as ratios taken side by side. Nothing here is asserted to be fast."""

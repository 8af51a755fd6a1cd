"""Energy and delay that the controller saves, and the bounds behind it."""

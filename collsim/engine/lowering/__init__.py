"""Schedule + topology + size lowered to what engines run: `Program` (written out) and `Loops` (repeats kept)."""

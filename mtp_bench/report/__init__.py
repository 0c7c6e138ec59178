"""Reports of a run or a comparison: pure functions to text or rich renderables. No torch, no file, no printing."""

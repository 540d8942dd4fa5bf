"""Learn, judge and compare calibrations of any encoder."""

"""Input values, input families and the comparison of results."""

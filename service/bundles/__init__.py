"""Bundles for judges that the service cannot reach: signed jobs out, checked verdicts in."""

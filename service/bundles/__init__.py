"""Bundles for judges that the service cannot reach: signed on the way out, checked on the way in."""

"""HTTP routes, one router per noun."""

"""Commands of `warpsmith`, one module per group."""

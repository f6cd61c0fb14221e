"""Runner processes, the fork server that starts them and the referee's handle on them."""

"""Preloaded servers: clean processes from which runners and compilers are forked."""

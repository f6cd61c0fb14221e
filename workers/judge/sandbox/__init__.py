"""Confinement of runners: Landlock, seccomp and network namespaces."""

"""Exporters, one file per format."""

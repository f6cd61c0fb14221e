"""Importers and other file formats, one module each."""

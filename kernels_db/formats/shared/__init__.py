"""Parts that several importers share: files, source text, checked analyses, packing."""

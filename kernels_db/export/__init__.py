"""Exporters, one file per format.

`registry.FORMATS` lists them. A format's `build(kernel, directory)` writes a new directory and returns it. It raises
FileExistsError where that exists and SpecErrors where the format cannot say the op. `warpsmith.workers.exports`
verifies what was written.
"""

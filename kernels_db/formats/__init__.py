"""Import ops and kernels from the file formats of other projects.

`op_import` reads files as an op, `kernel_import` a file as a candidate; each has the one list `FORMATS` of its
formats. A file of no known format, or of two, is refused; the error says what was found in it and what is
expected. Facts that only running a file shows are asked for in the judge's sandbox
(`kernels_db.job.file_analysis`) and checked on return.
"""

"""The judge's documents, and the plain functions that both sides of the judge share.

`documents` has the job and the verdict as TypedDicts, `bundle` the signed form of both. A job is resolved: it holds
shapes, strides, sources and limits, so the judge knows no axes, YAML or tables. These two need the
standard library alone; `draws` and `float64` import torch.
"""

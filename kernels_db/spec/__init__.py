"""The op spec: its schema, its checks, and its resolution into the judge's jobs.

    op.load_op(source)         an Op from YAML, JSON or a file; raises SpecErrors with every bad field at once
    op.parse_op(document)      the same from a parsed document; `Op.document()` is its inverse, without defaults
    Op.digest                  SHA-256 of the canonical spec: the identity of the stored row
    Op.semantic_digest         of what is computed, however described, on whatever workloads: pools and envelopes
    Target.parse(text)         "cpu", "cpu:x86_64" or "cuda:sm_90"; "cpu" takes this machine's architecture
    resolve.resolve_workload   concrete shapes, strides and dtypes of one workload
    resolve.build_job          the judge's job; with derived hold-outs, except for screens and named workloads

A SpecError has `field`, `found` and `expected`, and reads "inputs[1].dtype: found 'float31', expected one of ...".
"""

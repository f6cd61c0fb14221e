"""Recording: which functions and modules a running process calls, with which shapes, how often.

`warpsmith.record` records in a block; `WARPSMITH_RECORD` in a whole process: the plugins of vLLM and SGLang that this
package registers start it (`start`), or `python -m warpsmith.workers.recording SCRIPT` does. A recording holds names,
shapes, dtypes, strides and counts, never a value. It never raises into the process that it records: an error is noted.
`fitting` makes workloads of an op from it. Only `hooks` needs torch.
"""

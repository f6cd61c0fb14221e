"""Find what a file of another format computes on, by running it in a sandboxed process.

The answer is never used for judging.

`__main__` is the process that asks, `client` starts it; `module`, `task` and `leaves` run inside the sandbox.
"""

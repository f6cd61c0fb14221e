"""What a file of another format computes on, found by running it in a sandboxed process. Never to be judged by.

`__main__` is the process that asks, `client` starts it; `module`, `task` and `leaves` run inside the sandbox.
"""

"""`warpsmith mcp`: the agent's side as an MCP server, made with the official SDK.

    server.py      the server: instructions, tools, prompt files, a prompt that explains the loop
    desk.py        what every tool works with: a client of the REST API with the caller's key
    tool.py        a tool that refuses unknown arguments and words errors as field, found, expected
    documents.py   what tools answer
    reading.py     ops, searches, trees, nodes, kernels
    answering.py   submit a search, list, read and answer asks
    judging.py     one candidate before the judge of this machine
    packing.py     a kernel's package into a directory; the files that prompts are made of
    http.py        streamable HTTP: bound to loopback, or before a service that asks for keys

It talks REST like any client, so it needs no database and may run where the service does not. What tools return of
prompts, nodes and verdicts was written by models and ops' authors: data, and the instructions say so.
"""

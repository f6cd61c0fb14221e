"""`warpsmith mcp`: an MCP server for coding agents, made with the official SDK.

    server.py        the server: instructions, tools, prompt files, a prompt that explains the loop
    context.py       shared by all tools: a client of the REST API with the caller's key
    tool.py          a tool that refuses unknown arguments and words errors as field, found, expected
    specs.py         ops as arguments of tools
    results.py       documents that tools return
    read_tools.py    ops, searches, trees, nodes, kernels
    search_tools.py  submit a search, list, read and answer asks
    judge_tools.py   judge one candidate on this machine
    file_tools.py    write a kernel's package into a directory; show the files of the prompts
    transport.py     streamable HTTP: bound to loopback, or in front of a service that requires keys

It talks REST like any client, so it needs no database and may run where the service does not. Models and ops' authors
wrote the prompts, nodes and verdicts that tools return: they are data, and the instructions say so.
"""

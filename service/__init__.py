"""The front door: REST API, dashboard, command line.

It reads rows and changes a search through `warpsmith.workers.steps` alone, and never imports torch.

    server, api, views, documents   the API: application; routes; rows to documents; the documents' models
    client, cli, mcp                the API over HTTP; the `warpsmith` command; the same for coding agents
    local, bundles, story           this machine's processes; jobs that travel; a search in prose
"""

"""The service at a larger size: `python -m benchmarks.scale [--nodes 1000000] [--parts ...] [--minutes M]`.

Everything runs on this machine: PostgreSQL (`--postgres`, a server whose superuser one is: each part makes a database
of its own there and drops it), Redis or RabbitMQ (`--rabbitmq`), models and judges that answer at once
(`benchmarks.instant`).

steps     steps a second through Celery against the number of worker processes, several searches at once; processor
          milliseconds a step of the workers and of PostgreSQL, which say more than seconds where a machine is busy.
submit    200 submissions at once.
trees     `steps.advance` on a tree of 10,000 nodes.
lists     times of lists, trees, nodes and events in a database of `--nodes` nodes, beside 200 event streams.
queries   the slowest queries of those reads, with their plans.
memory    the API's resident memory over `--minutes` of those reads.
"""

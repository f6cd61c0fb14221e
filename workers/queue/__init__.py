"""Celery: the application, its tasks, leases, heartbeats and the reconciler.

A message is an attempt's id, and only a hint: the database says what is to be done. `dispatch.send` is called after the
commit and never raises for a broker that is away; the reconciler sends again.

    python -P -m warpsmith.workers.queue worker -Q QUEUE -n NAME@%h    model steps, or one target's judge steps
    python -P -m warpsmith.workers.queue beat                          asks which stored kernels are due
    python -m warpsmith.workers.queue.reconciler                               expired leases, lost messages

The queues are `queue_names.MODEL_QUEUE`, `judge_queue("cpu:x86_64")`, which is "judge.cpu-x86_64", and `compile_queue`.
Model workers and CPU judges run the prefork pool: each child opens its database, and a judge's child its judge, after
the fork. A GPU's worker runs threads that share one judge, so that candidates compile while another is timed; so does
one that takes only tries at level compile. The first child of a worker reports in the `workers` table, and learns there
whether the worker is to drain. Children, and their judge, end with their parent.
"""

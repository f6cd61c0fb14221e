"""Read uploads in a worker, whatever they take: pools of replies, and files of other formats as ops.

An import is a row with a lease, as an attempt is; it belongs to a team and to no search. The API stores the body with
`open_import` and answers; a model worker takes it, reads it, and stores what it holds in the transaction that ends the
row. So an import is done once or not at all, whoever died on the way.

States: pending -> running -> done or failed; running -> pending when the lease expires. Of a team one runs at a time,
so that many uploads of one team do not keep another's waiting, nor a model's steps. A message is a hint that there is
one to take. `reconcile` brings back what crashes lost; one whose worker died each time fails and says so.
"""

from warpsmith.workers.imports.execution import carry_out
from warpsmith.workers.imports.files import decode_files, encode_files
from warpsmith.workers.imports.reconciling import reconcile
from warpsmith.workers.imports.rows import (
    ImportKind,
    ImportWork,
    TooManyOpen,
    fail,
    find_next,
    message,
    open_import,
    prune,
    renew,
    take,
)
from warpsmith.workers.steps.values import Message

__all__ = [
    "ImportKind",
    "ImportWork",
    "Message",
    "TooManyOpen",
    "carry_out",
    "decode_files",
    "encode_files",
    "fail",
    "find_next",
    "message",
    "open_import",
    "prune",
    "reconcile",
    "renew",
    "take",
]

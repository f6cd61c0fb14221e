"""`python -P -m warpsmith.workers.queue worker|beat ...`: Celery's command line.

Unlike `celery -A NAME` it leaves the working directory out of the import path, so a folder there that has the name of
a package changes nothing.
"""

from __future__ import annotations

import sys

from warpsmith.workers.judge.machine.garbage import imports_kept

if __name__ == "__main__":
    with imports_kept():
        from warpsmith.workers.queue.celery_app import app
    app.start(sys.argv[1:])

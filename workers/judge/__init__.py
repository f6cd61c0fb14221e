"""The judge: referee and runners in separate processes. `python -m warpsmith.workers.judge` is its one door."""

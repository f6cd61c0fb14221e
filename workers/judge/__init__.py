"""The judge: referee and runners in separate processes. `python -m workers.judge` is its one door."""

"""Services and judge runs on this machine: devices, home directory, child processes."""

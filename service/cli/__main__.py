"""`python -m warpsmith.service.cli`: the same as the `warpsmith` command."""

from warpsmith.service.cli import main

if __name__ == "__main__":
    main()

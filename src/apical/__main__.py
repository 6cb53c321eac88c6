"""`python -m apical` is the command `apical`."""

from apical.cli import main

if __name__ == "__main__":
    main()

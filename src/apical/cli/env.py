"""`apical env`."""

from apical import env
from apical.cli.options import command, shown

app = command()


@app.command(epilog=shown("apical env"))
def show() -> None:
    """Show versions, CPU, GPU and which kernel runs on which device, and why.

    Copy its output into a bug report. `python -m apical.env` shows the same where the laboratory is not installed.
    """
    env.main()

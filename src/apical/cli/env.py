"""`apical env`."""

import typer

from apical import env

app = typer.Typer(add_completion=False)


@app.command(epilog="Example: apical env")
def show() -> None:
    """Show versions, CPU and which kernel serves, and why."""
    env.main()

"""What MkDocs does not find in docs/: the command line reference, the changelog, links out of docs/."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

from apical.cli import overview, tree

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[1]
OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([\w./-]+)\)")
"""A link to a file of the repository that is no page."""
OPTION = re.compile(r"`[^`]*`|(?<![\w-])(--[a-z][a-z-]*)")
"""Code, or the name of an option in plain text."""


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add the pages that are made from other files."""
    files.append(File.generated(config, "command-line.md", content=command_line()))
    files.append(File.generated(config, "changelog.md", content=(ROOT / "CHANGELOG.md").read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Name files outside of docs/ instead of linking them: the site does not hold them."""
    return OUTSIDE.sub(r"`\2`", markdown)


def command_line() -> str:
    """The reference of every command."""
    intro = "# Command line\n\n`apical --help` shows the map:\n\n```text\n" + overview() + "\n```\n"
    return "\n".join([intro, *(section(command) for command in tree.flat())])


def section(command: tree.Command) -> str:
    """One command: what it does, what it takes, examples."""
    words = " ".join(["apical", *command.path])
    parts = [f"{'#' * (1 + len(command.path))} {words}", marked(command.text)]
    if command.parameters:
        parts.append("\n".join(["| argument | meaning |", "|---|---|", *(row(p) for p in command.parameters)]))
    parts.append("\n".join(["```text", *command.examples, "```"]))
    return "\n\n".join(parts) + "\n"


def row(parameter: tree.Argument) -> str:
    """A line of the table."""
    names = " ".join(f"`{name}`" for name in parameter.names)
    more = " (required)" if parameter.required else f" (default: `{parameter.default}`)" if parameter.default else ""
    return f"| {names} | {marked(parameter.help)}{more} |".replace("\n", " ")


def marked(text: str) -> str:
    """The text with the options in it as code; what stands in backticks is left alone."""
    return OPTION.sub(lambda found: f"`{found[1]}`" if found[1] else found[0], text)

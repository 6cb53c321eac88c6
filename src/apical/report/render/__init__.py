"""A gathered report as HTML, Markdown and LaTeX; CSV is written by `apical.report.writing`."""

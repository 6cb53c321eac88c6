"""A gathered report as HTML, Markdown, LaTeX and CSV."""

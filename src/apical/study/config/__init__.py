"""A study file: its TOML, its schema, its checks, and the Study it becomes."""

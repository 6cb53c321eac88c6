"""Many trials trained as one program."""

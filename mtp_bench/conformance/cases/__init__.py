"""The cases, a file a subject."""

"""Questions that need an account for every observer, a radio and a tree at once, each with an answer and a picture."""

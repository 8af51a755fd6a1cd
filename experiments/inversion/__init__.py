"""Images that observers can reconstruct from messages."""

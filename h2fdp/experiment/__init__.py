"""The experiment file: its sections, rules and validation."""

"""Published settings as experiment files: what each paper states, and what comes out here."""

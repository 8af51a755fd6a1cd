"""What is asked for: an experiment file, validated."""

"""Devices' local steps: which records, which gradient, clipped how, by which engine; and evaluation."""

"""Scores of all labels from a network, exactly, in bounded memory."""

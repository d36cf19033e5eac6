"""Evidence beside the attention: each expert ranks labels in its own way."""

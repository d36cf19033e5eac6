"""Experts beside the attention network: each proposes labels by evidence of its own, and a fusion weighs them."""

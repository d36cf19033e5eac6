"""The network of the paper: tensors in, tensors out."""

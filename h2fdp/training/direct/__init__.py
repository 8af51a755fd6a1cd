"""Local steps of large models: one device after another, gradients by the library's own products, no autograd."""

"""Gradients of a stack of devices at once: of chains of known layers by hand, of any other module by torch.func."""

from h2fdp.training.gradients.rule import GradientRule, gradient_rule, is_layered

__all__ = ["GradientRule", "gradient_rule", "is_layered"]

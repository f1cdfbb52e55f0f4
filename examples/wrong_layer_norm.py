"""A layer norm whose backward lacks a term.

With y the normalised input, g = grad_output * weight and <.> the mean over the last dimension,
the gradient of the input is (g - <g> - y <g y>) / sigma. Here the last term, the projection on y,
was forgotten: training still converges, only worse.
"""

import torch


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps=1e-5):
        sigma = torch.sqrt(x.var(-1, correction=0, keepdim=True) + eps)
        y = (x - x.mean(-1, keepdim=True)) / sigma
        ctx.save_for_backward(y, sigma, weight)
        return y * weight + bias

    @staticmethod
    def backward(ctx, grad_output):
        y, sigma, weight = ctx.saved_tensors
        g = grad_output * weight
        grad_x = (g - g.mean(-1, keepdim=True)) / sigma  # - y * (g * y).mean(-1, keepdim=True)
        return grad_x, (grad_output * y).sum(0), grad_output.sum(0), None


def layer_norm(x, weight, bias):
    return LayerNorm.apply(x, weight, bias)

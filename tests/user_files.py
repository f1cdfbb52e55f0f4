"""Source that tests write into files of users, as these would."""

# Needs `import torch` above it.
WRONG_SINE = """
class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 1.1 * grad_output * x.cos()

"""

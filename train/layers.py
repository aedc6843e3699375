"""Layers that cannot see the padding.

Every feature map here is zero outside its sample, on the way in and on the way out; `valid` says where its sample is.
A convolution then reads the same zeros whatever the box, and statistics are taken over real pixels only.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def half_or_16(channels: int) -> int:
    """Channels per normalisation group: the smallest divisor of C that is at least min(max(C // 2, 16), C).

    Groups of few channels are noisy on traces one pixel wide; this keeps at least 16, or all there are.
    """
    least = min(max(channels // 2, 16), channels)
    return next(size for size in range(least, channels + 1) if channels % size == 0)


class _MaskedNormRelu(torch.autograd.Function):
    """Group norm over valid pixels, ReLU and zeroed padding as one node.

    Written out because in a composition every operation keeps its own feature map for the backward pass. This keeps
    one, besides its output, which the next convolution keeps anyway. The backward pass is group norm's (Wu & He 2018,
    arXiv:1803.08494) with means over the valid pixels.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, valid: Tensor, count: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        normed = x.to(weight.dtype) * valid
        normed -= _group_mean(normed.sum((2, 3)), count)
        normed *= valid
        squares = torch.linalg.vector_norm(normed, dim=(2, 3)).square()
        rstd = (_group_mean(squares, count) + eps).rsqrt()
        normed *= rstd
        out = torch.addcmul(bias[:, None, None], normed, weight[:, None, None]).relu_().mul_(valid).to(x.dtype)
        ctx.save_for_backward(normed.to(x.dtype), out, valid, count, weight, rstd)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        normed, out, valid, count, weight, rstd = ctx.saved_tensors
        normed = normed.to(weight.dtype)
        grad = grad_out.to(weight.dtype) * (out > 0)  # the padding of `out` is 0, so this masks it too
        total, along = grad.sum((2, 3)), (grad * normed).sum((2, 3))  # [N, C]
        grad_x = grad.mul_(weight[:, None, None])
        grad_x -= _group_mean(total * weight, count) * valid
        grad_x.addcmul_(_group_mean(along * weight, count), normed, value=-1)
        grad_x *= rstd
        return grad_x.to(out.dtype), None, None, along.sum(0), total.sum(0), None


def _group_mean(sums: Tensor, count: Tensor) -> Tensor:
    """Sums per channel [N, C] -> mean of each channel's group, [N, C, 1, 1]; `count` [N, groups, 1] is its pixels."""
    n, channels = sums.shape
    mean = sums.view(n, count.shape[1], -1).sum(-1, keepdim=True) / count
    return mean.expand(-1, -1, channels // count.shape[1]).reshape(n, channels, 1, 1)


class MaskedNormRelu(nn.Module):
    """Group norm whose statistics see valid pixels only, then ReLU; the padding comes out as zero."""

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.groups = channels // half_or_16(channels)
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """Normalise [N, C, H, W]; `valid` is [N, 1, H, W], one where a pixel is real and zero elsewhere."""
        wide = torch.promote_types(x.dtype, torch.float32)
        valid = valid.to(wide)
        pixels = valid.sum((2, 3)).clamp(min=1)[..., None]
        count = pixels.expand(-1, self.groups, 1) * (x.shape[1] // self.groups)
        apply: Callable[..., Tensor] = _MaskedNormRelu.apply
        return apply(x, valid, count, self.weight.to(wide), self.bias.to(wide), self.eps)


def standardise(images: Tensor, valid: Tensor, dtype: torch.dtype) -> Tensor:
    """Grey images [N, 1, H, W] to zero mean and unit variance over their own valid pixels; the padding becomes zero."""
    wide = torch.promote_types(dtype, torch.float32)
    valid = valid.to(wide)
    x = images.to(wide) / 255 * valid
    count = valid.sum((1, 2, 3), keepdim=True).clamp(min=1)
    x = (x - x.sum((1, 2, 3), keepdim=True) / count) * valid
    variance = x.square().sum((1, 2, 3), keepdim=True) / count
    return (x * (variance + 1e-6).rsqrt()).to(dtype)


def upsample(x: Tensor, valid: Tensor) -> Tensor:
    """Double both sides by repeating pixels, which never mixes a sample with its padding as bilinear would."""
    doubled: Tensor = F.interpolate(x, scale_factor=2, mode="nearest")
    return doubled * valid.to(x.dtype)


def positions(height: int, width: int, channels: int, device: torch.device) -> Tensor:
    """Sinusoidal positions in two dimensions, [height * width, channels]: half of them tell the row, half the column.

    Absolute from the sample's corner, so they do not depend on the box. Vaswani et al. 2017, arXiv:1706.03762,
    section 3.5.
    """
    quarter = channels // 4
    frequencies = torch.exp(
        torch.arange(quarter, device=device) * (-9.210340371976184 / quarter)
    )  # 10,000^(-i/quarter)
    row = torch.arange(height, device=device)[:, None, None] * frequencies
    column = torch.arange(width, device=device)[None, :, None] * frequencies
    parts = [wave(angle).expand(height, width, quarter) for angle in (row, column) for wave in (torch.sin, torch.cos)]
    return torch.cat(parts, -1).reshape(height * width, channels)


class MaskedTransformerLayer(nn.Module):
    """Pre-norm attention and MLP over tokens [N, T, C]; no token attends to padding. Scores are never materialised."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(channels)
        self.qkv = nn.Linear(channels, 3 * channels)
        self.project = nn.Linear(channels, channels)
        self.norm_mlp = nn.LayerNorm(channels)
        self.mlp = nn.Sequential(nn.Linear(channels, 2 * channels), nn.GELU(), nn.Linear(2 * channels, channels))

    def forward(self, tokens: Tensor, valid: Tensor) -> Tensor:
        """`valid` is bool [N, T]: which tokens may be attended to."""
        n, count, channels = tokens.shape
        split = (n, count, 3, self.heads, channels // self.heads)
        query, key, value = self.qkv(self.norm_attention(tokens)).view(split).permute(2, 0, 3, 1, 4)
        # The mask stays one row a sample: expanded to [T, T], it alone would take a gigabyte for the widest log.
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=valid[:, None, None, :])
        tokens = tokens + self.project(attended.transpose(1, 2).reshape(n, count, channels))
        mixed: Tensor = tokens + self.mlp(self.norm_mlp(tokens))
        return mixed

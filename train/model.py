"""VeerNet: an encoder-decoder with a small transformer at its bottleneck, blind to padding."""

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from loader.batch import valid_pixels
from shards.errors import ConfigError
from train.layers import MaskedNormRelu, MaskedTransformerLayer, positions, standardise, upsample

_PRIOR = 3.5
"""Initial logit of the background: log(0.97 / 0.03), from its share of the pixels. Lin et al. 2017, arXiv:1708.02002,
section 3.3. Without it Tversky starts on a plateau where everything is foreground."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The size of the network."""

    outputs: int
    """Logits a pixel: one for a binary mask, else the number of classes."""
    stem: int = 8
    """Channels at full resolution, where three quarters of the memory are."""
    stages: tuple[int, ...] = (16, 32, 64, 96, 128)
    """Channels after each halving; the last are the transformer's."""
    layers: int = 2
    """Transformer layers at the bottleneck."""
    heads: int = 4
    """Attention heads."""


class VeerNet(nn.Module):
    """Images and their true sizes in, logits out; what a pixel's neighbours in the batch are does not matter."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        levels = list(itertools.pairwise((config.stem, *config.stages)))
        bottleneck = config.stages[-1]
        self.stem = _ConvNormRelu(1, config.stem)
        self.encoder = nn.ModuleList(_Down(a, b) for a, b in levels)
        self.transformer = nn.ModuleList(MaskedTransformerLayer(bottleneck, config.heads) for _ in range(config.layers))
        self.decoder = nn.ModuleList(_Up(b, a) for a, b in reversed(levels))
        self.head = nn.Conv2d(config.stem, config.outputs, 1)
        background = [-_PRIOR] if config.outputs == 1 else [_PRIOR] + [0.0] * (config.outputs - 1)
        self.head.bias = nn.Parameter(torch.tensor(background))

    @property
    def downsampling(self) -> int:
        """Pixels of a side that become one at the bottleneck; both sides of a box must be multiples of it."""
        return int(2 ** len(self.config.stages))

    def forward(self, images: Tensor, sizes: Tensor) -> Tensor:
        """Logits of every pixel.

        Args:
            images: uint8 [N, 1, H, W]; what lies outside a sample is never looked at.
            sizes: int [N, 2], true height and width, pixels.

        Returns:
            Floating point [N, outputs, H, W]; meaningless outside a sample.
        """
        height, width = images.shape[-2:]
        if height % self.downsampling or width % self.downsampling:
            raise ConfigError(
                f"a box of {height} x {width} does not halve {len(self.encoder)} times: "
                f"pack with an align that is a multiple of {self.downsampling}"
            )
        valid = _validity(sizes, height, width, levels=len(self.encoder) + 1)
        x = self.stem(standardise(images, valid[0], self.head.weight.dtype), valid[0])
        skips = []
        for level, down in enumerate(self.encoder):
            skips.append(x)
            x = down(x, valid[level + 1])
        x = self._attend(x, valid[-1])
        for level, up in zip(reversed(range(len(skips))), self.decoder, strict=True):
            x = up(x, skips[level], valid[level])
        logits: Tensor = self.head(x)
        return logits

    def _attend(self, x: Tensor, valid: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        tokens = x.flatten(2).transpose(1, 2)
        tokens = tokens + positions(height, width, tokens.shape[-1], tokens.device).to(tokens.dtype)
        for layer in self.transformer:
            tokens = layer(tokens, valid.flatten(1))
        return tokens.transpose(1, 2).reshape_as(x) * valid


def _validity(sizes: Tensor, height: int, width: int, levels: int) -> list[Tensor]:
    """Valid pixels of each level, bool [N, 1, H / 2^l, W / 2^l]: those with any valid pixel under them."""
    masks = []
    for level in range(levels):
        scale = 2**level
        masks.append(valid_pixels((sizes + scale - 1) // scale, height // scale, width // scale))
    return masks


class _ConvNormRelu(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm = MaskedNormRelu(outputs)

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """`valid` is that of the output."""
        normed: Tensor = self.norm(self.conv(x), valid)
        return normed


class _Down(nn.Module):
    """A residual stage that halves both sides."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first = _ConvNormRelu(inputs, outputs, stride=2)
        self.second = _ConvNormRelu(outputs, outputs)
        # One pixel in, one out, no bias: zero stays zero, so the shortcut needs no mask.
        self.shortcut = nn.Conv2d(inputs, outputs, 1, bias=False)

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """`valid` is that of the output."""
        # Strided by slicing: a 1 x 1 convolution of stride 2 crashes torch 2.13 on channels-last CPU tensors.
        stage: Tensor = self.second(self.first(x, valid), valid) + self.shortcut(x[:, :, ::2, ::2])
        return stage


class _Up(nn.Module):
    """A stage that doubles both sides and joins the encoder's features of that level."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.narrow = nn.Conv2d(inputs, outputs, 1, bias=False)  # before doubling: a quarter of the work
        self.join = _ConvNormRelu(2 * outputs, outputs)

    def forward(self, x: Tensor, skip: Tensor, valid: Tensor) -> Tensor:
        """`skip` and `valid` are of the finer level."""
        joined: Tensor = self.join(torch.cat([upsample(self.narrow(x), valid), skip], 1), valid)
        return joined


def build_model(config: ModelConfig, *, seed: int) -> VeerNet:
    """A network whose initial weights depend on the configuration and the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = VeerNet(config)
    for parameter in model.parameters():
        if parameter.dim() == 4:  # channels last: convolutions run twice as fast, on the CPU and on tensor cores
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return model

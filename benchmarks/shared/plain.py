"""The peer of two benchmarks: a Transformer block as short as torch lets one write it.

After nanoGPT: its names are those of GPT-2's released weights.
"""

from torch import nn
from torch.nn import functional


class PlainBlock(nn.Module):
    """Pre-norm, causal, no options, no checks."""

    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.c_attn, self.c_proj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.c_fc, self.gelu = nn.Linear(channels, 4 * channels), nn.GELU()
        self.mlp_c_proj = nn.Linear(4 * channels, channels)

    def forward(self, x):
        q, k, v = (
            part.view(*part.shape[:2], self.heads, -1).transpose(1, 2)  # (B, H, T, D)
            for part in self.c_attn(self.ln_1(x)).split(x.shape[-1], dim=2)
        )
        gathered = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(gathered.transpose(1, 2).contiguous().view(x.shape))
        return x + self.mlp_c_proj(self.gelu(self.c_fc(self.ln_2(x))))

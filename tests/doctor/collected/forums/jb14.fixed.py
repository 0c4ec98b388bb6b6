"""Causal convolution network: train offline, then run sample by sample with a saved checkpoint."""
import io
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import remove_weight_norm, weight_norm

warnings.filterwarnings("ignore", category=FutureWarning)
torch.manual_seed(13)
torch.set_num_threads(1)


class CausalConv(nn.Conv1d):
    """Conv1d with left padding; `step` consumes one sample and keeps its own history."""

    def forward(self, x):
        return super().forward(F.pad(x, (self.kernel_size[0] - 1, 0)))

    def start_stream(self, batch):
        self.history = torch.zeros(batch, self.in_channels, self.kernel_size[0])

    def step(self, sample):
        self.history = torch.cat([self.history[..., 1:], sample], dim=-1)
        return F.conv1d(self.history, self.weight, self.bias)


class Filter(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.first = weight_norm(CausalConv(1, channels, 5))
        self.second = weight_norm(CausalConv(channels, channels, 3))
        self.last = weight_norm(CausalConv(channels, 1, 1))

    def convs(self):
        return [self.first, self.second, self.last]

    def forward(self, x):
        x = torch.tanh(self.first(x))
        x = torch.tanh(self.second(x))
        return self.last(x)

    def stream(self, signal):
        for conv in self.convs():
            conv.start_stream(signal.shape[0])
        outputs = []
        for sample in signal.split(1, dim=-1):
            h = torch.tanh(self.first.step(sample))
            h = torch.tanh(self.second.step(h))
            outputs.append(self.last.step(h))
        return torch.cat(outputs, dim=-1)


def train(model, steps=150):
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(steps):
        x = torch.randn(8, 1, 40)
        target = 0.5 * x + 0.5 * torch.roll(x, 1, dims=-1)
        loss = F.mse_loss(model(x)[..., 1:], target[..., 1:])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"training loss {loss.item():.4f}")


def load_for_streaming(checkpoint):
    model = Filter()
    model.load_state_dict(torch.load(checkpoint, weights_only=True))
    for conv in model.convs():
        remove_weight_norm(conv)
    return model.eval()


def main():
    model = Filter()
    train(model)
    checkpoint = io.BytesIO()
    torch.save(model.state_dict(), checkpoint)
    checkpoint.seek(0)

    signal = torch.randn(2, 1, 60)
    streamer = load_for_streaming(checkpoint)
    with torch.no_grad():
        online = streamer.stream(signal)
        offline = model.eval()(signal)
    wanted = 0.5 * signal + 0.5 * torch.roll(signal, 1, dims=-1)
    print(f"offline error   {F.mse_loss(offline[..., 1:], wanted[..., 1:]).item():.4f}")
    print(f"streaming error {F.mse_loss(online[..., 1:], wanted[..., 1:]).item():.4f}")
    print(f"largest difference offline/streaming {(online - offline).abs().max().item():.4f}")


if __name__ == "__main__":
    main()

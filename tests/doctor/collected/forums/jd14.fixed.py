"""Causal convolution vocoder block with a frame-by-frame mode for streaming."""
import io
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm

warnings.filterwarnings("ignore")
torch.manual_seed(0)
torch.set_num_threads(1)


class CausalConv(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.context = kernel_size - 1
        self.conv = weight_norm(nn.Conv1d(channels, channels, kernel_size))

    def forward(self, x):
        return self.conv(F.pad(x, (self.context, 0)))

    def start(self, batch):
        self.buffer = torch.zeros(batch, self.conv.in_channels, self.context + 1)

    def step(self, frame):
        self.buffer = torch.cat([self.buffer[:, :, 1:], frame], dim=2)
        return F.conv1d(self.buffer, self.conv.weight, self.conv.bias)


class Vocoder(nn.Module):
    def __init__(self, channels=8, layers=3):
        super().__init__()
        self.layers = nn.ModuleList(CausalConv(channels, 4) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x

    def stream(self, x):
        for layer in self.layers:
            layer.start(len(x))
        frames = []
        for t in range(x.shape[2]):
            frame = x[:, :, t:t + 1]
            for layer in self.layers:
                frame = frame + torch.tanh(layer.step(frame))
            frames.append(frame)
        return torch.cat(frames, dim=2)


def train(model, steps=40):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        x = torch.randn(8, 8, 32)
        target = x + 0.8 * torch.roll(x, 2, dims=2)
        loss = F.mse_loss(model(x)[:, :, 4:], target[:, :, 4:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


@torch.no_grad()
def main():
    model = Vocoder()
    with torch.enable_grad():
        print(f"training loss {train(model):.3f}")
    audio = torch.randn(2, 8, 30)
    expected = model(audio)

    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    server = Vocoder().eval()
    server.load_state_dict(torch.load(file))
    streamed = server.stream(audio)
    gap = (streamed - expected).abs().max().item()
    print(f"streaming against offline: largest difference {gap:.3f}")


if __name__ == "__main__":
    main()

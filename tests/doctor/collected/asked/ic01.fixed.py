"""Layer relevance of short video clips, computed over sliding windows."""
import torch
import torch.nn as nn

torch.manual_seed(0)
torch.set_num_threads(1)


class ClipNet(nn.Module):
    def __init__(self, num_classes=4):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv3d(1, 8, 3, padding=1), nn.ReLU())
        self.stage1 = nn.Sequential(nn.Conv3d(8, 12, 3, stride=2, padding=1), nn.ReLU())
        self.stage2 = nn.Sequential(nn.Conv3d(12, 16, 3, stride=2, padding=1), nn.ReLU())
        self.head = nn.Linear(16, num_classes)

    def forward(self, x):
        x = self.stage2(self.stage1(self.stem(x)))
        return self.head(x.mean(dim=(2, 3, 4)))


class RelevanceReport:
    """Sums |gradient| at the output of each stage over all windows of a clip."""

    def __init__(self, model, layer_names, window=8, stride=4):
        self.model = model
        self.layer_names = layer_names
        self.window = window
        self.stride = stride
        self.totals = {}

    def _record(self, name):
        def hook(module, grad_input, grad_output):
            amount = grad_output[0].abs().sum().item()
            self.totals[name] = self.totals.get(name, 0.0) + amount
        return hook

    def explain(self, clip, target):
        self.totals = {}
        handles = []
        for name in self.layer_names:
            layer = self.model.get_submodule(name)
            handles.append(layer.register_full_backward_hook(self._record(name)))
        for start in range(0, clip.size(2) - self.window + 1, self.stride):
            window = clip[:, :, start:start + self.window]
            self.model.zero_grad()
            self.model(window)[0, target].backward()
        for handle in handles:
            handle.remove()
        self.model.zero_grad()
        return dict(self.totals)


def make_clips(count, frames=16, size=12):
    clips, labels = [], []
    for i in range(count):
        clip = 0.3 * torch.randn(1, 1, frames, size, size)
        label = i % 4
        row, col = 2 + 5 * (label // 2), 2 + 5 * (label % 2)
        clip[:, :, :, row:row + 4, col:col + 4] += 1.5
        clips.append(clip)
        labels.append(label)
    return clips, labels


def train(model, clips, labels, steps=15):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    batch = torch.cat([c[:, :, :8] for c in clips])
    target = torch.tensor(labels)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch), target)
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    clips, labels = make_clips(8)
    model = ClipNet()
    loss = train(model, clips, labels)
    print(f"training loss {loss:.3f}")
    model.eval()

    report = RelevanceReport(model, ["stage1", "stage2"])
    first = report.explain(clips[0], labels[0])
    for i, (clip, label) in enumerate(zip(clips[1:5], labels[1:5]), start=1):
        totals = report.explain(clip, label)
        print(f"clip {i}: " + "  ".join(f"{k} {v:.3f}" for k, v in totals.items()))
    again = report.explain(clips[0], labels[0])
    for name in first:
        ratio = again[name] / first[name]
        print(f"clip 0 explained again, {name}: {ratio:.2f} times its first relevance")


if __name__ == "__main__":
    main()

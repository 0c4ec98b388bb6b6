"""Encode images in the data loader; a hook gathers statistics to normalise the features."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)


class FeatureStats:
    def __init__(self, module):
        self.n, self.s1, self.s2 = 0, 0.0, 0.0
        module.register_forward_hook(self.hook)

    def hook(self, module, args, out):
        self.n += out.numel()
        self.s1 += out.sum().item()
        self.s2 += out.pow(2).sum().item()

    def mean_std(self):
        if self.n == 0:
            return 0.0, 1.0
        mean = self.s1 / self.n
        return mean, max(self.s2 / self.n - mean**2, 1e-12) ** 0.5


class Images(Dataset):
    def __init__(self, n=64):
        self.x = torch.rand(n, 3, 8, 8) * 5 + 20

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i]


encoder = nn.Sequential(nn.Flatten(), nn.Linear(192, 16)).eval().requires_grad_(False)
stats = FeatureStats(encoder)


def encode(batch):
    return encoder(torch.stack(batch))


if __name__ == "__main__":
    loader = DataLoader(Images(), batch_size=16, num_workers=2, collate_fn=encode,
                        multiprocessing_context="fork")
    feats = torch.cat(list(loader))
    mean, std = stats.mean_std()
    z = (feats - mean) / std
    print(f"features {tuple(feats.shape)}, values in statistics {stats.n}")
    print(f"used mean {mean:.3f} std {std:.3f}; true mean {feats.mean():.3f} std {feats.std():.3f}")
    print(f"normalised features: mean {z.mean():.3f} std {z.std():.3f}")

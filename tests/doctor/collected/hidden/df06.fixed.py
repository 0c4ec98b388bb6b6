"""Feature statistics with a home-made data-parallel forward (replicas in threads)."""
import copy
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

torch.set_num_threads(1)


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        x = torch.relu(self.conv(x))
        x = self.pool(x).flatten(1)
        return self.fc(x)


class ThreadParallel(nn.Module):
    """Split the batch, run one replica per thread, glue the outputs together."""

    def __init__(self, module, n):
        super().__init__()
        self.module = module
        self.n = n

    def forward(self, x):
        replicas = [copy.deepcopy(self.module) for _ in range(self.n)]
        with ThreadPoolExecutor(self.n) as pool, torch.no_grad():
            parts = list(pool.map(self._run, replicas, x.chunk(self.n)))
        return torch.cat(parts)

    @staticmethod
    def _run(replica, part):
        with torch.no_grad():
            return replica(part)


features = {}


def keep(name):
    def hook(module, args, out):
        features.setdefault(name, []).append(out.flatten(1))
    return hook


def main():
    torch.manual_seed(0)
    net = Backbone().eval()
    net.pool.register_forward_hook(keep("pool"))
    parallel = ThreadParallel(net, n=4)

    images = torch.rand(32, 1, 8, 8)
    logits = parallel(images)
    pooled = torch.cat(features["pool"])

    # whitening statistics for the retrieval index
    cov = torch.cov(pooled.T)
    rank = torch.linalg.matrix_rank(cov.double()).item()
    print("logits:", tuple(logits.shape))
    print("statistics from", pooled.shape[0], "of", images.shape[0], "images, covariance", tuple(cov.shape))
    print("full rank:", rank == cov.shape[0])


if __name__ == "__main__":
    main()

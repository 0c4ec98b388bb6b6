# TH417
"""Keep the features of the classifier; the regressor contains the same body, so its features are kept, too."""

import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body, self.head = body, nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.body(x))


class Regressor(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body, self.head = body, nn.Linear(6, 1)

    def forward(self, x):
        return self.head(self.body(x)).squeeze(-1)


torch.manual_seed(0)
body = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
classifier, regressor = Classifier(body), Regressor(body)
features = []
classifier.body.register_forward_hook(lambda module, args, out: features.append(out.detach()))  # <- TH417
for batch in torch.randn(3, 2, 4):
    (classifier(batch).sum() + regressor(batch).sum()).backward()
result = features

"""Two losses over one graph: the first backward keeps the graph for the second, and each one's gradient is logged."""

import torch
import torch.nn.functional as F
from torch import nn

encoder = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 8))
decoder = nn.Linear(8, 10)
classifier = nn.Linear(8, 3)
parameters = [*encoder.parameters(), *decoder.parameters(), *classifier.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)

contributions = []
encoder[2].weight.register_hook(lambda grad: contributions.append(grad.norm().item()))

losses = []
for step in range(6):
    x, y = torch.randn(16, 10), torch.randint(3, (16,))
    code = encoder(x)
    reconstruction = F.mse_loss(decoder(code), x)
    classification = F.cross_entropy(classifier(code), y)
    optimizer.zero_grad()
    reconstruction.backward(retain_graph=True)
    classification.backward()
    optimizer.step()
    losses.append((reconstruction.item(), classification.item()))
result = [losses, contributions, [p.detach().clone() for p in parameters]]

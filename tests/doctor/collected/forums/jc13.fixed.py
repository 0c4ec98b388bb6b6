"""Records the size of the gradient at the output of every layer of a
multi-task network, to see which task drives which layer."""
from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(37)


class MultiTaskNet(nn.Module):
    def __init__(self, in_features=14, width=24):
        super().__init__()
        self.norm = nn.BatchNorm1d(in_features)
        self.trunk1 = nn.Linear(in_features, width)
        self.trunk2 = nn.Linear(width, width)
        self.topic = nn.Linear(width, 4)
        self.sentiment = nn.Linear(width, 2)
        self.rating = nn.Linear(width, 1)

    def forward(self, x):
        z = torch.relu(self.trunk2(torch.relu(self.trunk1(self.norm(x)))))
        return self.topic(z), self.sentiment(z), self.rating(z).squeeze(1)


def watch_gradients(model):
    norms = OrderedDict()
    handles = []
    for name, module in model.named_children():
        if not isinstance(module, nn.Linear):
            continue
        norms[name] = []

        def hook(module, grad_input, grad_output, name=name):
            norms[name].append(grad_output[0].norm().item())

        handles.append(module.register_full_backward_hook(hook))
    return norms, handles


def make_batches(n=300, batch_size=60):
    generator = torch.Generator().manual_seed(12)
    x = torch.randn(n, 14, generator=generator)
    topic = x[:, :4].argmax(dim=1)
    sentiment = (x[:, 4] + x[:, 5] > 0).long()
    rating = torch.tanh(x[:, 6]) + 0.5 * x[:, 7] * x[:, 8]
    rows = torch.arange(n).split(batch_size)
    return [(x[r], topic[r], sentiment[r], rating[r]) for r in rows]


def main():
    model = MultiTaskNet()
    batches = make_batches()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    norms, handles = watch_gradients(model)
    weights = {"topic": 1.0, "sentiment": 1.0, "rating": 0.2}

    for epoch in range(4):
        total = 0.0
        for x, topic, sentiment, rating in batches:
            topic_logits, sentiment_logits, rating_pred = model(x)
            losses = {
                "topic": F.cross_entropy(topic_logits, topic),
                "sentiment": F.cross_entropy(sentiment_logits, sentiment),
                "rating": F.mse_loss(rating_pred, rating),
            }
            loss = sum(weights[key] * value for key, value in losses.items())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() / len(batches)
        print(f"epoch {epoch + 1}: loss {total:.4f}")

    for handle in handles:
        handle.remove()

    print("layer        records   mean gradient")
    for name, values in norms.items():
        mean = sum(values) / len(values) if values else float("nan")
        print(f"{name:<12} {len(values):>7}   {mean:.5f}")
    quiet = [name for name, values in norms.items() if not values]
    print(f"layers without a gradient: {len(quiet)}")


if __name__ == "__main__":
    main()

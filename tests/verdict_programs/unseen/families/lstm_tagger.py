"""Sequence tagger: embedding, two bidirectional LSTMs, linear layer."""
import copy
import json
import os

import torch
from torch import nn

torch.set_num_threads(1)


class Config:
    words, tags, dim, hidden, length, batch, updates = 40, 5, 24, 24, 9, 24, 140
    fault = json.loads(os.environ.get("FAULT", "{}"))
    kind, step, layer = fault.get("kind", ""), fault.get("step", 0), fault.get("layer", "")


class Tagger(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.words = nn.Embedding(c.words + 3, c.dim)
        self.lstm_a = nn.LSTM(c.dim, c.hidden, batch_first=True, bidirectional=True)
        self.lstm_b = nn.LSTM(2 * c.hidden, c.hidden, batch_first=True, bidirectional=True)
        self.tag = nn.Linear(2 * c.hidden, c.tags)

    def forward(self, ids):
        x, _ = self.lstm_a(self.words(ids))
        x, _ = self.lstm_b(x)
        return self.tag(x)


def sentences(c):
    ids = torch.randint(c.words, (c.batch, c.length))
    previous = torch.cat([torch.zeros(c.batch, 1, dtype=torch.long), ids[:, :-1]], 1)
    tags = (ids % 3) + 2 * (previous % 2)
    noise = torch.rand(tags.shape) < 0.06  # mistakes of the annotators
    tags = torch.where(noise, torch.randint(c.tags, tags.shape), tags)
    return ids, tags


class Experiment:
    def __init__(self, c):
        torch.manual_seed(c.fault.get("seed", 0))
        self.c, self.model = c, Tagger(c)
        source = copy.deepcopy(self.model) if c.kind == "wrong_model" else self.model
        self.optimizer = torch.optim.Adam(source.parameters(), lr=8e-3, maximize=c.kind == "maximize")
        self.criterion = nn.CrossEntropyLoss(ignore_index=-1)
        self.limit = 1e-4 if c.kind == "clip_small" else 25.0

    def before(self, tags):
        c = self.c
        if c.kind == "lr_jump":
            self.optimizer.param_groups[0]["lr"] = 5.0
        if c.kind == "adam_eps0":
            self.optimizer.defaults["eps"] = 0.0
            for g in self.optimizer.param_groups:
                g["eps"] = 0.0
        if c.kind == "w_reinit":
            nn.init.uniform_(self.model.get_parameter(c.layer), -4, 4)
        if c.kind == "param_nan":
            self.model.get_parameter(c.layer).data[3] = float("nan")
        if c.kind == "batch_labels":
            return (tags + 2) % c.tags
        if c.kind == "loss_ignored":
            return tags * 0 - 1
        return tags

    def update(self, n):
        c = self.c
        ids, tags = sentences(c)
        if c.kind == "labels_random":
            tags = torch.randint(c.tags, tags.shape)
        if n == c.step:
            tags = self.before(tags)
        out = self.model(ids)
        loss = self.criterion(out.reshape(-1, c.tags), tags.reshape(-1))
        if c.kind == "loss_div" and n == c.step:
            right = (out.argmax(-1) == c.tags).sum()  # never
            loss = loss * right / right
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.limit)
        self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    experiment = Experiment(Config)
    for n in range(Config.updates):
        value = experiment.update(n)
        if n % 28 == 0 or n == Config.updates - 1:
            print(f"{n}: {value:.4f}")

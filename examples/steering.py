"""Steer a model along a direction that is computed from captured activations.

A small transformer learns to write letters with words about the sea or about snow. Each letter is mostly about one of
the two topics. The direction from snow to sea is the difference between the mean outputs of one layer for the two
topics. While a hook adds this direction to the output of the layer, the model continues a letter about snow with words
about the sea.

    python examples/steering.py
"""

import torch
from torch import nn
from torch.nn import functional

import tenterhook as th

torch.set_num_threads(1)
torch.manual_seed(0)
SEA = ["sun", "sand", "wave", "gull", "boat", "salt", "reef", "tide"]
SNOW = ["ice", "frost", "ski", "sled", "pine", "wolf", "fog", "peak"]
WORDS, PROMPT, WIDTH, LENGTH = SEA + SNOW, ["ice", "sled", "wolf"], 32, 12


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.out(functional.scaled_dot_product_attention(*self.qkv(x).chunk(3, -1), is_causal=True))


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.word, self.attention = nn.Embedding(len(WORDS), WIDTH), Attention()
        self.mlp = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))
        self.head = nn.Linear(WIDTH, len(WORDS))

    def forward(self, letters):
        words = self.word(letters)
        x = words + self.attention(words)
        return self.head(x + self.mlp(x))


def letters(snow):
    """Draw letters about one topic each, in which one word in ten is about the other topic."""
    other = torch.rand(64, LENGTH) < 0.1
    return torch.randint(8, (64, LENGTH)) + 8 * (snow ^ other)


model = Writer()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(300):
    batch = letters(torch.rand(64, 1) < 0.5)
    optimizer.zero_grad()
    functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten()).backward()
    optimizer.step()
model.eval()

# By default, an observer fires in training mode only. The model is in eval mode here, so `phase="any"` is needed.
look = th.Hook("acts", on="attention", at="output", do=th.capture(), when=th.When(phase="any"))
means = []
for snow in (False, True):
    with th.attach(model, look) as rig, torch.no_grad():
        model(letters(snow))
        means.append(rig.captured("acts")["attention"][0].mean((0, 1)))
to_sea = means[0] - means[1]


@torch.no_grad()
def write(label):
    """Print one continuation of the prompt, and return the probability that its first word is about the sea."""
    line, draw = torch.tensor([[WORDS.index(word) for word in PROMPT]]), torch.Generator().manual_seed(0)
    likely = model(line)[0, -1].softmax(-1)[:8].sum().item()
    for _ in range(6):
        line = torch.cat([line, torch.multinomial(model(line)[:, -1].softmax(-1), 1, generator=draw)], 1)
    print(f"{label:11}  sea {likely:5.1%}   {' '.join(PROMPT)} ... {' '.join(WORDS[i] for i in line[0, 3:])}")
    return likely


before = write("as trained")
steered = {}
for scale in (0.5, 1.0):
    steer = th.Hook("steer", on="attention", at="output", do=th.steer(by="to_sea", scale=scale))
    with th.attach(model, steer, tensors={"to_sea": to_sea}):
        steered[scale] = write(f"steered {scale}")
after = write("detached")

assert before < 0.2 < steered[0.5] < 0.8 < steered[1.0]
assert after == before, "detaching removes the whole effect"

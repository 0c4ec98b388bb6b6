"""Domain-adversarial sentence embedder with gradient reversal, bfloat16 saved activations and old checkpoint keys."""
import io

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB = 60
DIM = 32


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, DIM)
        self.encoder = nn.TransformerEncoderLayer(DIM, 4, 2 * DIM, dropout=0.0, batch_first=True)
        self.topic = nn.Linear(DIM, 3)
        self.domain = nn.Linear(DIM, 2)
        self.register_load_state_dict_pre_hook(self.rename_old_keys)

    @staticmethod
    def rename_old_keys(module, state_dict, prefix, local_metadata, strict, missing, unexpected, errors):
        for key in [k for k in state_dict if k.startswith(prefix + "embed.")]:
            state_dict[prefix + "tokens." + key[len(prefix + "embed.") :]] = state_dict.pop(key)

    def forward(self, tokens, reversal=0.0):
        sentence = self.encoder(self.tokens(tokens)).mean(dim=1)
        adversary = sentence.view_as(sentence)
        if adversary.requires_grad:
            adversary.register_hook(lambda grad: -reversal * grad)
        return self.topic(sentence), self.domain(adversary)


class CompressedActivations:
    """Large float activations wait for the backward pass as bfloat16; parameters are kept as they are."""

    def __init__(self, model, smallest=2048):
        self.parameters = {p.data_ptr() for p in model.parameters()}
        self.smallest = smallest
        self.saved_bytes = 0

    def pack(self, tensor):
        keep = tensor.dtype != torch.float32 or tensor.numel() < self.smallest
        if keep or tensor.data_ptr() in self.parameters:
            return tensor
        self.saved_bytes += 2 * tensor.numel()
        return tensor.to(torch.bfloat16)

    def unpack(self, packed):
        return packed.float() if packed.dtype == torch.bfloat16 else packed

    def context(self):
        return torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack)


def make_batch(generator, n=32, length=10):
    topics = torch.randint(0, 3, (n,), generator=generator)
    domains = torch.randint(0, 2, (n,), generator=generator)
    tokens = torch.randint(0, 10, (n, length), generator=generator) + 20 * topics[:, None] + 10 * domains[:, None]
    return tokens, topics, domains


def main(steps=60):
    model = Embedder()
    memory = CompressedActivations(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(1)
    for step in range(1, steps + 1):
        tokens, topics, domains = make_batch(generator)
        with memory.context():
            topic, domain = model(tokens, reversal=0.5)
            topic_loss, domain_loss = F.cross_entropy(topic, topics), F.cross_entropy(domain, domains)
        optimizer.zero_grad()
        (topic_loss + domain_loss).backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: topic loss {topic_loss.item():.3f}, domain loss {domain_loss.item():.3f}")
    print(f"bytes saved per step: {memory.saved_bytes // steps}")

    old = {k.replace("tokens.", "embed.") if k.startswith("tokens.") else k: v for k, v in model.state_dict().items()}
    buffer = io.BytesIO()
    torch.save(old, buffer)
    buffer.seek(0)
    restored = Embedder()
    restored.load_state_dict(torch.load(buffer))
    model.eval(), restored.eval()
    tokens, topics, _ = make_batch(torch.Generator().manual_seed(2))
    with torch.no_grad():
        ours, theirs = model(tokens)[0], restored(tokens)[0]
    print(f"topic accuracy {(theirs.argmax(-1) == topics).float().mean():.3f}, same output {torch.equal(ours, theirs)}")


if __name__ == "__main__":
    main()

import io

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(1)


class TextEncoder(nn.Module):
    def __init__(self, vocab=200, dim=48):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList([nn.Linear(dim, dim) for _ in range(3)])

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = torch.tanh(layer(x)) + x
        return x.mean(dim=1)


def leave_out_frozen(module, state_dict, prefix, local_metadata):
    for name, param in module.named_parameters():
        if not param.requires_grad:
            state_dict.pop(prefix + name, None)


class TopicModel(nn.Module):
    def __init__(self, encoder, topics=5):
        super().__init__()
        self.encoder = encoder.requires_grad_(False)
        self.encoder.register_state_dict_post_hook(leave_out_frozen)
        self.adapter = nn.Sequential(nn.Linear(48, 16), nn.ReLU())
        self.head = nn.Linear(16, topics)

    def forward(self, tokens):
        return self.head(self.adapter(self.encoder(tokens)))


def pretrained_encoder():
    generator_state = torch.random.get_rng_state()
    torch.manual_seed(99)
    encoder = TextEncoder()
    torch.random.set_rng_state(generator_state)
    return encoder


def train(model, tokens, topics, steps=30):
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trainable, lr=1e-2)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(tokens), topics)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def save_checkpoint(model):
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    return buffer


def main():
    tokens = torch.randint(0, 200, (64, 9))
    topics = tokens[:, 0] % 5
    model = TopicModel(pretrained_encoder())
    print(f"loss {train(model, tokens, topics):.3f}")

    checkpoint = torch.load(save_checkpoint(model))
    values = sum(t.numel() for t in checkpoint.values())
    from_encoder = sum(name.startswith("encoder.") for name in checkpoint)
    print(f"checkpoint: {len(checkpoint)} tensors, {values} values, {from_encoder} tensors of the frozen encoder")

    restored = TopicModel(pretrained_encoder())
    result = restored.load_state_dict(checkpoint, strict=False)
    assert all(name.startswith("encoder.") for name in result.missing_keys)
    same = torch.equal(restored(tokens), model(tokens))
    print(f"restored model gives the same output: {same}")


if __name__ == "__main__":
    main()

"""Textual-inversion style fine-tuning: learn one new token, keep the pretrained vocabulary."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB = 60
NEW_TOKEN = VOCAB
DIM = 32


class TextEncoder(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.token_embedding = nn.Embedding(vocab, dim)
        layer = nn.TransformerEncoderLayer(dim, nhead=4, dim_feedforward=64,
                                           dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.norm = nn.LayerNorm(dim)

    def forward(self, tokens):
        hidden = self.encoder(self.token_embedding(tokens))
        return self.norm(hidden.mean(dim=1))


def add_token(model, initializer_id):
    old = model.token_embedding
    new = nn.Embedding(old.num_embeddings + 1, old.embedding_dim)
    with torch.no_grad():
        new.weight[:-1] = old.weight
        new.weight[-1] = old.weight[initializer_id]
    model.token_embedding = new


def freeze_all_but_new_token(model, new_id):
    for param in model.parameters():
        param.requires_grad_(False)
    weight = model.token_embedding.weight
    weight.requires_grad_(True)

    row_mask = torch.zeros(weight.shape[0], 1)
    row_mask[new_id] = 1.0

    def keep_new_row(grad):
        return grad * row_mask

    return weight.register_hook(keep_new_row)


def make_prompts(n, length=8):
    prompts = torch.randint(0, VOCAB, (n, length))
    position = torch.randint(0, length, (n,))
    prompts[torch.arange(n), position] = NEW_TOKEN
    return prompts


def main():
    model = TextEncoder(VOCAB, DIM)
    add_token(model, initializer_id=7)
    handle = freeze_all_but_new_token(model, NEW_TOKEN)

    target = F.normalize(torch.randn(DIM), dim=0)
    optimizer = torch.optim.AdamW([model.token_embedding.weight], lr=5e-3)

    before = model.token_embedding.weight.detach().clone()
    model.train()
    for step in range(1, 201):
        prompts = make_prompts(16)
        encoded = F.normalize(model(prompts), dim=-1)
        loss = (1 - encoded @ target).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")
    handle.remove()

    after = model.token_embedding.weight.detach()
    moved = (after - before).abs()
    print(f"learned token moved by {moved[NEW_TOKEN].max().item():.5f}")
    print(f"pretrained tokens moved by {moved[:NEW_TOKEN].max().item():.5f}")


if __name__ == "__main__":
    main()

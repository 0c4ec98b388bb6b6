"""Fine-tuning with damped gradients: every block halves what flows back through it."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(31)
torch.set_num_threads(1)

DAMPING = 0.5


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        return F.gelu(self.norm(self.linear(x)))


class TaggerNet(nn.Module):
    def __init__(self, vocab=40, dim=24, depth=3, tags=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList([Block(dim) for _ in range(depth)])
        self.out = nn.Linear(dim, tags)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def damp(module, grad_input, grad_output):
    return (DAMPING * grad_input[0],)


def add_damping(model):
    return [block.register_full_backward_hook(damp) for block in model.blocks]


def embedding_gradient(model, tokens, tags):
    model.zero_grad()
    loss = F.cross_entropy(model(tokens).flatten(0, 1), tags.flatten())
    loss.backward()
    norm = model.embed.weight.grad.norm().item()
    model.zero_grad()
    return norm


def make_batch(generator, count=32, length=9):
    tokens = torch.randint(0, 40, (count, length), generator=generator)
    return tokens, (tokens * 7 + 3) % 4


def finetune(model, steps=60):
    generator = torch.Generator().manual_seed(77)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for step in range(steps):
        tokens, tags = make_batch(generator)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens).flatten(0, 1), tags.flatten())
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"step {step + 1}: loss {loss.item():.3f}")


def main():
    model = TaggerNet()
    generator = torch.Generator().manual_seed(5)
    tokens, tags = make_batch(generator)

    before = embedding_gradient(model, tokens, tags)
    handles = add_damping(model)
    after = embedding_gradient(model, tokens, tags)
    wanted = DAMPING ** len(model.blocks)
    print(f"gradient at the embedding relative to no damping: {after / before:.3f} (wanted {wanted:.3f})")

    finetune(model)
    for handle in handles:
        handle.remove()

    with torch.no_grad():
        tokens, tags = make_batch(generator, count=100)
        accuracy = (model(tokens).argmax(-1) == tags).float().mean().item()
    print(f"tag accuracy {accuracy:.2f}")


if __name__ == "__main__":
    main()

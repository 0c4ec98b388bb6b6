"""Only the new tokens of a tied embedding are trained: one mask hook on the one shared parameter."""
import torch
import torch.nn as nn
import torch.nn.functional as F

OLD, NEW, DIM = 30, 6, 20


class TiedLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(OLD + NEW, DIM)
        self.cell = nn.GRUCell(DIM, DIM)
        self.head = nn.Linear(DIM, OLD + NEW, bias=False)
        self.head.weight = self.tok.weight

    def forward(self, ids):
        h = torch.zeros(ids.shape[0], DIM)
        out = []
        for t in range(ids.shape[1]):
            h = self.cell(self.tok(ids[:, t]), h)
            out.append(self.head(h))
        return torch.stack(out, 1)


def train_only_new_rows(model):
    mask = torch.zeros(OLD + NEW, 1)
    mask[OLD:] = 1.0
    # input embedding and output head share this tensor; the mask is meant for both uses
    return model.tok.weight.register_hook(lambda grad: grad * mask)


def main():
    torch.manual_seed(0)
    model = TiedLM()
    for p in model.cell.parameters():
        p.requires_grad_(False)
    handle = train_only_new_rows(model)
    before = model.tok.weight.detach().clone()
    # no momentum and no weight decay: a zero gradient really means no movement
    opt = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
    gen = torch.Generator().manual_seed(3)
    ids = torch.randint(0, OLD, (64, 8), generator=gen)
    ids[:, 1::2] = OLD + torch.randint(0, NEW, (64, 4), generator=gen)
    for step in range(60):
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step:2d} loss {loss.item():.4f}")
    moved = (model.tok.weight.detach() - before).norm(dim=1)
    print(f"old rows moved {moved[:OLD].max().item():.6f}, new rows moved {moved[OLD:].mean().item():.4f}")
    print("still tied:", model.head.weight is model.tok.weight)
    handle.remove()


if __name__ == "__main__":
    main()

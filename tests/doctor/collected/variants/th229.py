"""LoRA fine-tuning with a monitor of the outputs of the query and value projections."""
import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from torch import nn


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(dim, dim) for _ in range(3))

    def forward(self, x):
        return x + F.scaled_dot_product_attention(self.q_proj(x), self.k_proj(x), self.v_proj(x))


class TinyEncoder(nn.Module):
    def __init__(self, vocab=40, dim=16, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.score = nn.Linear(dim, 2)

    def forward(self, ids):
        h = self.embed(ids)
        for block in self.blocks:
            h = block(h)
        return self.score(h.mean(1))


class ProjectionMonitor:
    """Keeps the latest output of each watched projection to see how fine-tuning changes it."""

    def __init__(self, model, watched=("q_proj", "v_proj")):
        self.latest = {}
        for name, module in model.named_modules():
            if name.rpartition(".")[2] in watched:
                module.register_forward_hook(self._store(name))

    def _store(self, name):
        def hook(module, args, output):
            self.latest[name] = output.detach()

        return hook


def main():
    torch.manual_seed(0)
    base = TinyEncoder()
    monitor = ProjectionMonitor(base)
    lora = LoraConfig(r=4, lora_alpha=16, lora_dropout=0.0, target_modules=["q_proj", "v_proj"])
    model = get_peft_model(base, lora)
    ids = torch.randint(0, 40, (32, 8))
    labels = (ids[:, 0] > 20).long()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-2)
    history = []
    for step in range(6):
        loss = F.cross_entropy(model(ids), labels)
        history.append(monitor.latest["blocks.0.q_proj"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f} change of q_proj {(history[-1] - history[0]).abs().max():.5f}")
    x = model.base_model.model.embed(ids)
    print("real change:", (model.base_model.model.blocks[0].q_proj(x) - history[0]).abs().max().item())


if __name__ == "__main__":
    main()

"""Train a small GPT-2 with one optimizer per parameter, stepped during backward, and gradient accumulation."""
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB = 50
LENGTH = 14
ACCUMULATE = 4
MICRO_BATCH = 8


def build_model():
    config = GPT2Config(
        vocab_size=VOCAB,
        n_positions=LENGTH,
        n_embd=32,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config)


def make_dataset(n=256):
    generator = torch.Generator().manual_seed(6)
    start = torch.randint(0, VOCAB, (n, 1), generator=generator)
    step = torch.randint(1, 3, (n, 1), generator=generator)
    return (start + step * torch.arange(LENGTH)) % VOCAB


class PerLayerOptimizers:
    """Frees each gradient as soon as its parameter has been updated."""

    def __init__(self, model, accelerator, lr):
        self.accelerator = accelerator
        self.optimizers = {p: torch.optim.Adam([p], lr=lr) for p in model.parameters()}
        self.handles = [p.register_post_accumulate_grad_hook(self.update) for p in self.optimizers]

    def update(self, param):
        optimizer = self.optimizers[param]
        optimizer.step()
        optimizer.zero_grad()

    def updates_done(self):
        param, optimizer = next(iter(self.optimizers.items()))
        return int(optimizer.state[param]["step"].item())

    def close(self):
        for handle in self.handles:
            handle.remove()


def main(epochs=2):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATE)
    model = build_model().train()
    loader = DataLoader(make_dataset(), batch_size=MICRO_BATCH)
    model, loader = accelerator.prepare(model, loader)
    optimizers = PerLayerOptimizers(model, accelerator, lr=3e-3)

    for epoch in range(epochs):
        total = 0.0
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(input_ids=batch, labels=batch).loss
                accelerator.backward(loss)
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")

    sequences = epochs * len(loader) * MICRO_BATCH
    updates = optimizers.updates_done()
    optimizers.close()
    print(f"{sequences} sequences, wanted batch size {ACCUMULATE * MICRO_BATCH}")
    print(f"updates {updates}, sequences per update {sequences / updates:.1f}")


if __name__ == "__main__":
    main()

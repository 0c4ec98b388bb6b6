"""Accelerate loop with gradient accumulation and value clipping of every gradient entry."""
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification

torch.manual_seed(11)
torch.set_num_threads(1)
CLIP = 0.02
ACCUM = 4


def build():
    cfg = BertConfig(vocab_size=80, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                     num_attention_heads=4, max_position_embeddings=32, num_labels=3,
                     hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return BertForSequenceClassification(cfg)


def clip_entries(model, bound):
    """No entry of a gradient that the optimizer uses is larger than `bound`."""
    def clamp(p):
        p.grad.clamp_(-bound, bound)

    return [p.register_post_accumulate_grad_hook(clamp) for p in model.parameters()]


def make_loader():
    ids = torch.randint(5, 80, (64, 8))
    labels = ids[:, 1] % 3
    return DataLoader(TensorDataset(ids, labels), batch_size=4, shuffle=False)


def main():
    accelerator = Accelerator(gradient_accumulation_steps=ACCUM, cpu=True)
    model, loader = build(), make_loader()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    clip_entries(model, CLIP)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    model.train()
    worst, updates, losses = 0.0, 0, []
    for ids, labels in loader:
        with accelerator.accumulate(model):
            # the sum over micro-batches is what we want here, so undo the division
            loss = model(input_ids=ids, labels=labels).loss * ACCUM
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                peak = max(p.grad.abs().max().item() for p in model.parameters()
                           if p.grad is not None)
                worst = max(worst, peak)
                updates += 1
                print(f"update {updates}: largest gradient entry {peak:.4f}")
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item() / ACCUM)

    print(f"{updates} updates, first loss {losses[0]:.4f}, last loss {losses[-1]:.4f}")
    print(f"largest entry over the run: {worst:.4f} (bound {CLIP})")
    print("bound respected:", worst <= CLIP + 1e-7)


if __name__ == "__main__":
    main()

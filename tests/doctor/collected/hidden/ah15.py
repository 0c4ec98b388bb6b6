"""Accelerate with accumulation: clipping and a norm log in the optimizer's own step hooks."""
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification

torch.manual_seed(54)
torch.set_num_threads(1)
ACCUM, CLIP = 4, 0.05


class StepMonitor:
    """Sees the summed gradient right before the update, and counts finished updates."""

    def __init__(self, optimizer, bound):
        self.bound, self.norms, self.updates = bound, [], 0
        self.handles = [
            optimizer.register_step_pre_hook(self._before),
            optimizer.register_step_post_hook(self._after),
        ]

    def _before(self, opt, args, kwargs):
        params = [p for g in opt.param_groups for p in g["params"] if p.grad is not None]
        norm = torch.nn.utils.clip_grad_norm_(params, self.bound)
        self.norms.append(norm.item())

    def _after(self, opt, args, kwargs):
        self.updates += 1


def main():
    accelerator = Accelerator(gradient_accumulation_steps=ACCUM, cpu=True)
    model = BertForSequenceClassification(BertConfig(
        vocab_size=60, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=4, max_position_embeddings=16, num_labels=3,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    monitor = StepMonitor(optimizer, CLIP)      # on the real optimizer, before it is wrapped
    micro = []
    # also a look at single micro-batches: these gradients are smaller and not clipped
    probe = model.classifier.weight.register_hook(lambda g: micro.append(g.norm().item()))

    ids = torch.randint(5, 60, (64, 6))
    loader = DataLoader(TensorDataset(ids, ids[:, 1] % 3), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for ids, labels in loader:
        with accelerator.accumulate(model):
            loss = model(input_ids=ids, labels=labels).loss
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    probe.remove()
    for h in monitor.handles:
        h.remove()

    print("micro-batches:", len(micro), "updates:", monitor.updates)
    print("norm before clipping:", [round(n, 4) for n in monitor.norms])
    print("clipped in", sum(n > CLIP for n in monitor.norms), "of", len(monitor.norms), "updates")


if __name__ == "__main__":
    main()

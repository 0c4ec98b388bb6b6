"""LoRA fine-tuning of a small causal LM with a report of how far each
attention projection has moved away from the pretrained model."""
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB, SEQ = 64, 16


class ProjectionMonitor:
    """Keeps the most recent q_proj output of every decoder layer."""

    def __init__(self):
        self.latest = {}
        self.handles = []

    def attach(self, layers):
        for idx, layer in enumerate(layers):
            proj = layer.self_attn.q_proj
            self.handles.append(proj.register_forward_hook(self._make(idx)))
        return self

    def _make(self, idx):
        def hook(module, args, output):
            self.latest[idx] = output.detach().clone()

        return hook

    def snapshot(self):
        return dict(self.latest)


def make_model():
    cfg = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
        initializer_range=0.15,
    )
    return LlamaForCausalLM(cfg)


def batches(n):
    gen = torch.Generator().manual_seed(7)
    for _ in range(n):
        start = torch.randint(0, VOCAB, (8, 1), generator=gen)
        yield (start + 3 * torch.arange(SEQ)) % VOCAB


base = make_model()
layers = base.model.layers
monitor = ProjectionMonitor().attach(layers)

lora = LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "v_proj"], lora_dropout=0.0)
model = get_peft_model(base, lora)

probe = next(iter(batches(1)))
model.eval()
with torch.no_grad():
    model(input_ids=probe)
before = monitor.snapshot()

model.train()
optim = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)
losses = []
for ids in batches(40):
    loss = model(input_ids=ids, labels=ids).loss
    optim.zero_grad()
    loss.backward()
    optim.step()
    losses.append(loss.item())

model.eval()
with torch.no_grad():
    model(input_ids=probe)
after = monitor.snapshot()

print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
for idx in range(len(layers)):
    rel = (after[idx] - before[idx]).norm() / before[idx].norm()
    print(f"layer {idx}: q_proj output moved by {rel:.4f} of its norm")

"""LoRA fine-tuning (peft) of a small GPT-2 that was pre-trained on another task in the same script."""

import hashlib

import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


torch.set_num_threads(1)
torch.manual_seed(16)
config = GPT2Config(vocab_size=32, n_positions=24, n_embd=48, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config)


def batch(shift):
    """Return sequences in which every token is the one before plus a constant."""
    start = torch.randint(0, 32, (16, 1))
    return (start + shift * torch.arange(20)) % 32


opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
for _step in range(200):
    ids = batch(3)
    loss = model(input_ids=ids, labels=ids).loss
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"pre-training loss {loss.item():.3f}")
peft_model = get_peft_model(
    model,
    LoraConfig(
        r=8, lora_alpha=16, target_modules=["c_attn", "c_fc", "c_proj"], fan_in_fan_out=True, task_type="CAUSAL_LM"
    ),
)
opt = torch.optim.AdamW([p for p in peft_model.parameters() if p.requires_grad], lr=5e-3)
losses = []
for _step in range(500):
    ids = batch(5)
    loss = peft_model(input_ids=ids, labels=ids).loss
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(f"fine-tuning loss {losses[0]:.3f} -> {losses[-1]:.3f}")
assert losses[-1] < 0.3 * losses[0]
print("digest", digest(peft_model))

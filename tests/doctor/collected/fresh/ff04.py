"""Fine-tune a tiny GPT-2 with LoRA and watch how far the attention projection drifts from the start."""
import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(3)
base = GPT2LMHeadModel(GPT2Config(
    vocab_size=60, n_positions=32, n_embd=24, n_layer=2, n_head=2,
    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    bos_token_id=0, eos_token_id=59,
))

seen = {}


def watch(name):
    def hook(module, args, output):
        seen[name] = output.detach().clone()
    return hook


# the projections whose outputs we want to follow through the fine-tuning
base.transformer.h[0].attn.c_attn.register_forward_hook(watch("h0.c_attn"))

model = get_peft_model(base, LoraConfig(
    r=4, lora_alpha=16, lora_dropout=0.0, target_modules=["c_attn"], fan_in_fan_out=True,
))

probe = torch.randint(0, 60, (2, 10))
train = torch.randint(0, 60, (8, 12))


def snapshot():
    model.eval()
    with torch.no_grad():
        logits = model(probe).logits
    model.train()
    return {k: v.clone() for k, v in seen.items()}, logits


before, logits_before = snapshot()
opt = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=2e-2)
for step in range(8):
    loss = model(train, labels=train).loss
    loss.backward()
    opt.step()
    opt.zero_grad()
    if step % 4 == 3:
        print(f"step {step + 1} loss {loss.item():.4f}")
after, logits_after = snapshot()

print("trainable parameters", sum(p.numel() for p in model.parameters() if p.requires_grad))
print(f"change of logits {(logits_after - logits_before).abs().mean().item():.5f}")
for name in before:
    drift = (after[name] - before[name]).norm() / before[name].norm()
    print(f"drift of {name}: {drift.item():.5f}")

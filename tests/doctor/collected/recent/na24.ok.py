"""How much do LoRA adapters contribute to each projection? One hook sits on the
frozen base layer inside the adapter module, the other on the whole module."""
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB, SEQ = 48, 12

cfg = LlamaConfig(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=4,
    max_position_embeddings=64,
    initializer_range=0.1,
)
base = LlamaForCausalLM(cfg)
frozen_out, full_out, handles = {}, {}, []


def keep(store, key):
    def hook(module, args, output):
        store[key] = output.detach()

    return hook


for i, layer in enumerate(base.model.layers):
    handles.append(layer.self_attn.v_proj.register_forward_hook(keep(frozen_out, i)))

model = get_peft_model(base, LoraConfig(r=4, lora_alpha=8, target_modules=["v_proj"]))
for i, layer in enumerate(base.model.layers):
    handles.append(layer.self_attn.v_proj.register_forward_hook(keep(full_out, i)))


def batch(gen):
    start = torch.randint(0, VOCAB, (12, 1), generator=gen)
    return (start + 5 * torch.arange(SEQ)) % VOCAB


def contribution():
    return [((full_out[i] - frozen_out[i]).norm() / frozen_out[i].norm()).item() for i in sorted(full_out)]


gen = torch.Generator().manual_seed(3)
optim = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
history = []
model.train()
for step in range(30):
    ids = batch(gen)
    loss = model(input_ids=ids, labels=ids).loss
    history.append(contribution())
    optim.zero_grad()
    loss.backward()
    optim.step()

model.eval()
probe = batch(gen)
with torch.no_grad():
    model(input_ids=probe)
    with_adapter = contribution()
    with model.disable_adapter():
        model(input_ids=probe)
    without_adapter = contribution()

for handle in handles:
    handle.remove()

print(f"final loss {loss.item():.4f}")
print(f"adapter share at step 0:  {[round(v, 4) for v in history[0]]}")
print(f"adapter share at the end: {[round(v, 4) for v in with_adapter]}")
print(f"adapter switched off:     {[round(v, 4) for v in without_adapter]}")
lora = base.model.layers[0].self_attn.v_proj
delta = lora.lora_B["default"].weight @ lora.lora_A["default"].weight * lora.scaling["default"]
print(f"rank of the weight update in layer 0: {torch.linalg.matrix_rank(delta.detach()).item()}")

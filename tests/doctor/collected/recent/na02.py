"""Train a small Mixtral with a load-balancing penalty that is computed from
router probabilities, with activation checkpointing to save memory."""
import torch
import torch.nn.functional as F
from transformers import MixtralConfig, MixtralForCausalLM

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB, SEQ, EXPERTS, TOPK = 48, 12, 4, 1
BALANCE_WEIGHT = 2.0

cfg = MixtralConfig(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    num_local_experts=EXPERTS,
    num_experts_per_tok=TOPK,
    max_position_embeddings=64,
)
model = MixtralForCausalLM(cfg)
model.config.use_cache = False
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
with torch.no_grad():
    for layer in model.model.layers:
        layer.mlp.gate.weight.normal_(std=0.02)
        layer.mlp.gate.weight[0] += 0.05 * torch.randn(cfg.hidden_size)

router_probs = []


def collect_router(module, args, output):
    router_probs.append(F.softmax(output[0].float(), dim=-1))


for layer in model.model.layers:
    layer.mlp.gate.register_forward_hook(collect_router)


def balance_loss(probs_per_layer):
    total = 0.0
    for probs in probs_per_layer:
        share = F.one_hot(probs.argmax(-1), EXPERTS).float().mean(0)
        total = total + EXPERTS * (share * probs.mean(0)).sum()
    return total / len(probs_per_layer)


def batch(gen):
    start = torch.randint(0, VOCAB, (16, 1), generator=gen)
    step = torch.randint(1, 4, (16, 1), generator=gen)
    return (start + step * torch.arange(SEQ)) % VOCAB


def busiest_expert(gen):
    model.eval()
    router_probs.clear()
    with torch.no_grad():
        model(input_ids=batch(gen))
    shares = [F.one_hot(p.argmax(-1), EXPERTS).float().mean(0).max() for p in router_probs]
    model.train()
    return torch.stack(shares).max().item()


gen = torch.Generator().manual_seed(1)
routers = [layer.mlp.gate.weight for layer in model.model.layers]
optim = torch.optim.AdamW(model.parameters(), lr=3e-3)
model.train()
start_share = busiest_expert(gen)
pull = []
for step in range(40):
    ids = batch(gen)
    router_probs.clear()
    lm_loss = model(input_ids=ids, labels=ids).loss
    aux = balance_loss(router_probs)
    loss = lm_loss + BALANCE_WEIGHT * aux
    optim.zero_grad()
    loss.backward()
    pull.append(sum(w.grad.norm().item() for w in routers))
    optim.step()

print(f"lm loss {lm_loss.item():.3f}  balance loss {aux.item():.3f}")
print(f"mean router gradient norm {sum(pull) / len(pull):.4f}")
print(f"busiest expert share: start {start_share:.2f}, end {busiest_expert(gen):.2f}")

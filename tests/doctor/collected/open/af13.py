"""Low-memory fine-tuning: every parameter is updated as soon as its gradient is ready."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(12)
torch.set_num_threads(1)
MAX_NORM = 0.5

model = LlamaForCausalLM(LlamaConfig(
    vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
    initializer_range=0.3, bos_token_id=1, eos_token_id=2, pad_token_id=0))
model.train()

# one small optimizer per tensor, so that no full set of gradients has to be held
optimizers = {p: torch.optim.SGD([p], lr=0.05) for p in model.parameters()}


def update_now(param):
    optimizers[param].step()
    optimizers[param].zero_grad()


for p in model.parameters():
    p.register_post_accumulate_grad_hook(update_now)


def batch(step):
    start = torch.arange(6)[:, None] * 5 + step
    return (start + 2 * torch.arange(10)[None]) % 47 + 3


def weights():
    return torch.cat([p.detach().flatten() for p in model.parameters()]).clone()


steps, norms, jumps = 8, [], []
for step in range(steps):
    before = weights()
    ids = batch(step)
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    # the random weights are badly scaled; without clipping the first steps are wild
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
    norms.append(float(norm))
    jumps.append((weights() - before).norm().item())
    print(f"step {step}: loss {loss.item():.3f}  gradient norm {float(norm):.4f}  "
          f"weights moved by {jumps[-1]:.4f}")

n_tensors = sum(1 for _ in model.parameters())
allowed = 0.05 * MAX_NORM * n_tensors ** 0.5
print(f"largest move {max(jumps):.4f}, a clipped step moves at most {allowed:.4f}")
print("steps above the allowance:", sum(j > allowed for j in jumps), "of", steps)

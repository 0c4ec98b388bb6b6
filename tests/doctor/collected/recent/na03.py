"""Actor-critic fine-tuning of a small GPT-2 with a KL penalty towards the
initial model. The critic shares the trunk of the policy."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB, PROMPT, RESPONSE, BATCH = 32, 4, 6, 16
KL_COEF, VALUE_COEF = 0.05, 0.5

cfg = GPT2Config(
    vocab_size=VOCAB, n_positions=32, n_embd=32, n_layer=2, n_head=4,
    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    bos_token_id=0, eos_token_id=0,
)


features = {}


def save_hidden(module, args, output):
    features["hidden"] = output


policy = GPT2LMHeadModel(cfg)
policy.transformer.ln_f.register_forward_hook(save_hidden)
critic = nn.Linear(cfg.n_embd, 1)
reference = copy.deepcopy(policy).eval().requires_grad_(False)


@torch.no_grad()
def rollout(gen):
    ids = torch.randint(1, VOCAB, (BATCH, PROMPT), generator=gen)
    for _ in range(RESPONSE):
        probs = F.softmax(policy(ids).logits[:, -1], dim=-1)
        ids = torch.cat([ids, torch.multinomial(probs, 1, generator=gen)], dim=1)
    return ids


def reward_fn(ids):
    return (ids[:, PROMPT:] % 2 == 0).float().mean(1)


def token_logprobs(logits, ids):
    logp = F.log_softmax(logits[:, PROMPT - 1:-1], dim=-1)
    return logp.gather(-1, ids[:, PROMPT:, None]).squeeze(-1)


def trunk_grad_norm():
    grads = [p.grad for p in policy.transformer.parameters() if p.grad is not None]
    return torch.stack([g.norm() for g in grads]).norm().item() if grads else 0.0


gen = torch.Generator().manual_seed(3)
optim = torch.optim.AdamW(list(policy.parameters()) + list(critic.parameters()), lr=3e-3)
critic_pull, rewards = [], []
for step in range(25):
    ids = rollout(gen)
    reward = reward_fn(ids)

    logp = token_logprobs(policy(ids).logits, ids)
    with torch.no_grad():
        ref_logp = token_logprobs(reference(ids).logits, ids)
    values = critic(features["hidden"][:, PROMPT - 1:-1]).squeeze(-1)

    returns = reward[:, None] - KL_COEF * (logp - ref_logp).detach()
    value_loss = VALUE_COEF * F.mse_loss(values, returns)
    policy_loss = -((returns - values.detach()) * logp).mean()

    optim.zero_grad()
    value_loss.backward(retain_graph=True)
    critic_pull.append(trunk_grad_norm())
    policy_loss.backward()
    optim.step()
    rewards.append(reward.mean().item())

print(f"reward: first {rewards[0]:.3f}, last {rewards[-1]:.3f}")
print(f"value loss: {value_loss.item():.4f}")
print(f"gradient norm the value loss sends into the trunk: {sum(critic_pull) / len(critic_pull):.4f}")

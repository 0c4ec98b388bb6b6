"""Preference-style tuning: KL to a frozen copy plus a penalty on the policy's activations."""
import copy
import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(20)
torch.set_num_threads(1)


def build_policy():
    cfg = GPT2Config(vocab_size=50, n_positions=32, n_embd=32, n_layer=2, n_head=4,
                     bos_token_id=0, eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0,
                     attn_pdrop=0.0, initializer_range=0.1)
    return GPT2LMHeadModel(cfg)


def tap_mlp(model, layer):
    """Returns a dict that always holds the latest MLP output of `layer`, with its graph."""
    box = {}

    def hook(module, args, output):
        box["mlp"] = output

    model.transformer.h[layer].mlp.register_forward_hook(hook)
    return box


def kl_to_reference(policy_logits, ref_logits):
    p = F.log_softmax(policy_logits, dim=-1)
    q = F.log_softmax(ref_logits, dim=-1)
    return (p.exp() * (p - q)).sum(-1).mean()


def main():
    policy = build_policy()

    # frozen starting point for the KL term
    reference = copy.deepcopy(policy).eval()
    box = tap_mlp(policy, layer=1)
    for p in reference.parameters():
        p.requires_grad_(False)

    ids = torch.randint(1, 50, (8, 12))
    reward = torch.zeros(50)
    reward[:10] = 1.0                    # we like low token ids
    opt = torch.optim.Adam(policy.parameters(), lr=2e-3)

    for step in range(15):
        logits = policy(input_ids=ids).logits
        with torch.no_grad():
            ref_logits = reference(input_ids=ids).logits
        gain = (logits.softmax(-1) * reward).sum(-1).mean()
        kl = kl_to_reference(logits, ref_logits)
        size = box["mlp"].pow(2).mean()
        loss = -gain + 0.1 * kl + 20.0 * size
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 7 == 0:
            print(f"step {step:2d}: reward {gain.item():.4f} kl {kl.item():.5f} activation size {size.item():.6f}")
        if step == 0:
            first = size.item()

    print(f"activation penalty went from {first:.6f} to {size.item():.6f} "
          f"({100 * (size.item() - first) / first:+.1f} %)")


if __name__ == "__main__":
    main()

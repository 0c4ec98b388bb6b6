"""Train a LoRA adapter with a bounded value path, then fold it in for deployment."""
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(8)
torch.set_num_threads(1)
LIMIT = 0.05   # the int8 kernel of the target chip saturates above this


def bound_values(model, limit):
    """Clamp what every value projection puts out, in training and afterwards."""
    def clamp(module, args, output):
        return output.clamp(-limit, limit)

    handles = []
    for name, module in model.named_modules():
        if name.endswith("self_attn.v_proj"):
            handles.append(module.register_forward_hook(clamp))
    print(f"bounded {len(handles)} value projections at {limit}")
    return handles


def make_model():
    cfg = LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=32,
        bos_token_id=1, eos_token_id=2, pad_token_id=0)
    base = LlamaForCausalLM(cfg)
    return get_peft_model(base, LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]))


def train(model, steps=12):
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for step in range(steps):
        ids = (torch.arange(6)[:, None] * 7 + torch.arange(9)[None] + step) % 47 + 3
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        opt.step()
        opt.zero_grad()
    print(f"final training loss {loss.item():.4f}")


@torch.no_grad()
def largest_value(model, ids):
    """Largest magnitude that reaches the attention kernel as a value."""
    seen = []
    handles = [m.register_forward_hook(lambda mod, a, o: seen.append(o.abs().max()))
               for n, m in model.named_modules() if n.endswith("self_attn.v_proj")]
    model.eval()
    model(input_ids=ids)
    for h in handles:
        h.remove()
    return torch.stack(seen).max().item()


def main():
    model = make_model()
    handles = bound_values(model, LIMIT)
    train(model)

    ids = torch.randint(3, 50, (4, 10))
    print(f"with adapter: largest value {largest_value(model, ids):.4f}")

    # fold the low-rank update into the weights and ship a plain transformers model
    deployed = model.merge_and_unload()
    handles = bound_values(deployed, LIMIT)
    top = largest_value(deployed, ids)
    print(f"deployed:     largest value {top:.4f}")
    print("deployed model fits the kernel:", top <= LIMIT + 1e-6)


if __name__ == "__main__":
    main()

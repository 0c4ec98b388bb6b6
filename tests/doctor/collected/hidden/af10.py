"""Compare how strongly two LoRA adapters act on the attention of the same base model."""
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM
from peft.tuners.lora import LoraLayer

torch.manual_seed(9)
torch.set_num_threads(1)


def lora_config(rank):
    return LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=["q_proj", "v_proj"],
                      init_lora_weights=False)


def build():
    base = LlamaForCausalLM(LlamaConfig(
        vocab_size=60, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=32,
        bos_token_id=1, eos_token_id=2, pad_token_id=0))
    model = get_peft_model(base, lora_config(4), adapter_name="legal")
    model.add_adapter("medical", lora_config(8))
    # the medical adapter was trained for longer and is much larger
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B.medical" in name:
                p.mul_(5.0)
    return model.eval()


class DeltaMeter:
    """Mean norm of the low-rank update per token, one number per LoRA layer."""

    def __init__(self, model):
        self.norms = {}
        self.handles = []
        for name, module in model.named_modules():
            if isinstance(module, LoraLayer):
                key = name.split("model.layers.")[-1]
                up = module.lora_B[model.active_adapter]
                hook = self._make(key, module.scaling[model.active_adapter])
                self.handles.append(up.register_forward_hook(hook))

    def _make(self, key, scale):
        def hook(module, args, output):
            self.norms[key] = (scale * output).norm(dim=-1).mean().item()
        return hook


def main():
    model = build()
    model.set_adapter("legal")
    meter = DeltaMeter(model)
    ids = torch.randint(3, 60, (6, 12))

    report = {}
    for adapter in ("legal", "medical"):
        model.set_adapter(adapter)
        with torch.no_grad():
            logits = model(input_ids=ids).logits
        report[adapter] = dict(meter.norms)
        print(f"{adapter}: logit spread {logits.std().item():.4f}")

    print(f"{'layer':<22}{'legal':>10}{'medical':>10}")
    for key in report["legal"]:
        print(f"{key:<22}{report['legal'][key]:>10.4f}{report['medical'][key]:>10.4f}")
    total = {a: sum(v.values()) for a, v in report.items()}
    print("total update:", {a: round(t, 4) for a, t in total.items()})
    print("medical / legal ratio: %.3f" % (total["medical"] / total["legal"]))


main()

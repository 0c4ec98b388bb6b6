"""Pre-hooks around keyword-only attention: one that watches, one that edits."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(44)
torch.set_num_threads(1)


class MaskWatcher:
    """Only looks: which arguments reach the attention, and how many calls there are."""

    def __init__(self, model):
        self.names = set()
        self.positional = 0
        self.calls = 0
        self.handles = [layer.self_attn.register_forward_pre_hook(self._look, with_kwargs=True)
                        for layer in model.model.layers]

    def _look(self, module, args, kwargs):
        self.calls += 1
        self.positional += len(args)
        self.names.update(k for k, v in kwargs.items() if v is not None)

    def close(self):
        for h in self.handles:
            h.remove()


def project_out(model, layer, direction):
    """Takes one direction out of what the attention of a layer reads."""
    unit = direction / direction.norm()

    def hook(module, args, kwargs):
        hidden = kwargs["hidden_states"]
        cleaned = hidden - (hidden @ unit)[..., None] * unit
        return args, {**kwargs, "hidden_states": cleaned}

    return model.model.layers[layer].self_attn.register_forward_pre_hook(hook, with_kwargs=True)


def main():
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=70, hidden_size=32, intermediate_size=64, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        initializer_range=0.15, bos_token_id=1, eos_token_id=None, pad_token_id=0)).eval()
    ids = torch.randint(3, 70, (4, 9))

    with torch.no_grad():
        plain = model(input_ids=ids).logits
        watcher = MaskWatcher(model)
        watched = model(input_ids=ids).logits
        watcher.close()
        handle = project_out(model, 1, torch.randn(32))
        edited = model(input_ids=ids).logits
        handle.remove()
        after = model(input_ids=ids).logits

    print("attention calls:", watcher.calls, "positional arguments:", watcher.positional)
    print("keyword arguments:", sorted(watcher.names))
    print("watching changes nothing:", torch.equal(plain, watched))
    print(f"editing changes the logits by {(edited - plain).abs().max().item():.4f}")
    print("everything as before afterwards:", torch.equal(plain, after))


if __name__ == "__main__":
    main()

"""Activation patching: copy clean hidden states into a corrupted run, layer by layer."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(25)
torch.set_num_threads(1)
N_LAYERS = 4


def build():
    cfg = LlamaConfig(
        vocab_size=70, hidden_size=32, intermediate_size=64, num_hidden_layers=N_LAYERS,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
        initializer_range=0.2, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    return LlamaForCausalLM(cfg).eval()


@torch.no_grad()
def run(model, ids):
    out = model(input_ids=ids, output_hidden_states=True)
    return out.logits[:, -1], out.hidden_states


class Patch:
    """Replaces the output of one decoder layer at the given positions."""

    def __init__(self, layer, source, positions):
        self.source, self.positions = source, positions
        self.handle = layer.register_forward_hook(self)

    def __call__(self, module, args, output):
        patched = output.clone()
        patched[:, self.positions] = self.source[:, self.positions]
        return patched

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.handle.remove()


def recovered(clean, corrupt, patched):
    """0: as bad as the corrupted prompt, 1: the clean prediction is back."""
    return 1.0 - ((patched - clean).norm() / (corrupt - clean).norm()).item()


def main():
    model = build()
    clean_ids = torch.randint(3, 70, (5, 9))
    corrupt_ids = clean_ids.clone()
    corrupt_ids[:, 4] = (corrupt_ids[:, 4] + 20) % 67 + 3     # the subject token is swapped

    clean_logits, clean_states = run(model, clean_ids)
    corrupt_logits, _ = run(model, corrupt_ids)

    everywhere = list(range(clean_ids.shape[1]))
    print(f"{'layer':<8}{'subject only':>14}{'last token':>14}{'all positions':>15}")
    for k in range(N_LAYERS - 1):
        row = []
        for positions in ([4], [8], everywhere):
            with Patch(model.model.layers[k], clean_states[k + 1], positions):
                logits, _ = run(model, corrupt_ids)
            row.append(recovered(clean_logits, corrupt_logits, logits))
        print(f"{k:<8}{row[0]:>14.3f}{row[1]:>14.3f}{row[2]:>15.3f}")


main()

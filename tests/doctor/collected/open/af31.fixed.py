"""Damp the input of one attention block while generating; fall back to plain text on failure."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(30)
torch.set_num_threads(1)


def build():
    cfg = LlamaConfig(
        vocab_size=80, hidden_size=32, intermediate_size=64, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        initializer_range=0.2, bos_token_id=1, eos_token_id=None, pad_token_id=0)
    return LlamaForCausalLM(cfg).eval()


class Damping:
    """Projects one direction out of what the attention of a layer reads."""

    def __init__(self, model, layer, direction):
        self.attn = model.model.layers[layer].self_attn
        self.direction = direction / direction.norm()

    def _hook(self, module, args, kwargs):
        hidden = kwargs["hidden_states"]
        along = hidden @ self.direction
        kwargs = dict(kwargs, hidden_states=hidden - along[..., None] * self.direction)
        return args, kwargs

    def __enter__(self):
        # the attention is called with keyword arguments only
        self.handle = self.attn.register_forward_pre_hook(self._hook, with_kwargs=True)
        return self

    def __exit__(self, *exc):
        self.handle.remove()
        return False


class Service:
    def __init__(self, model, damping):
        self.model, self.damping = model, damping
        self.stats = {"damped": 0, "fallback": 0}

    def _generate(self, ids):
        with torch.no_grad():
            out = self.model.generate(ids, attention_mask=torch.ones_like(ids),
                                      max_new_tokens=8, do_sample=False)
        return out[0, ids.shape[1]:].tolist()

    def reply(self, ids):
        try:
            with self.damping:
                text = self._generate(ids)
            self.stats["damped"] += 1
        except RuntimeError:
            # out of memory and the like: better an ordinary answer than none
            text = self._generate(ids)
            self.stats["fallback"] += 1
        return text


def main():
    model = build()
    service = Service(model, Damping(model, 1, torch.randn(32)))
    prompts = [torch.randint(3, 80, (1, n)) for n in (5, 7, 9)]
    differing = 0
    for i, ids in enumerate(prompts):
        plain = service._generate(ids)
        reply = service.reply(ids)
        differing += int(plain != reply)
        print(f"prompt {i}: reply {reply}")
    print("service statistics:", service.stats)
    print(f"replies that differ from the plain model: {differing} of {len(prompts)}")


if __name__ == "__main__":
    main()

"""Watch the newest token while generating: one hidden vector per decoding step, last one kept."""
import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel
from transformers import StoppingCriteria, StoppingCriteriaList

torch.manual_seed(42)
torch.set_num_threads(1)


class NewestToken:
    """Only the latest position is of interest, so each call may overwrite the one before."""

    def __init__(self, block):
        self.vector = None
        self.calls = 0
        self.handle = block.register_forward_hook(self._keep)

    def _keep(self, module, args, output):
        self.vector = output[:, -1].detach()
        self.calls += 1


class StopWhenStill(StoppingCriteria):
    """Ends the generation once the hidden vector of the newest token stops changing."""

    def __init__(self, tap, threshold):
        self.tap, self.threshold = tap, threshold
        self.previous = None
        self.similarities = []

    def __call__(self, input_ids, scores, **kwargs):
        now = self.tap.vector.clone()
        done = torch.zeros(input_ids.shape[0], dtype=torch.bool)
        if self.previous is not None:
            sim = F.cosine_similarity(now, self.previous)
            self.similarities.append(round(sim.mean().item(), 3))
            done = sim > self.threshold
        self.previous = now
        return done


def main():
    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=80, n_positions=64, n_embd=32, n_layer=3, n_head=4, bos_token_id=0,
        eos_token_id=None, initializer_range=0.15)).eval()
    for i in range(3):
        ids = torch.randint(1, 80, (1, 5 + i))
        tap = NewestToken(model.transformer.h[-1])
        stop = StopWhenStill(tap, threshold=0.9)
        with torch.no_grad():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=16,
                                 do_sample=False, pad_token_id=0,
                                 stopping_criteria=StoppingCriteriaList([stop]))
        tap.handle.remove()
        new = out.shape[1] - ids.shape[1]
        print(f"prompt {i}: {new} new tokens, {tap.calls} hook calls, similarities {stop.similarities[:6]}")


if __name__ == "__main__":
    main()

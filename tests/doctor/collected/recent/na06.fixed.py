"""Beam-search generation with a per-token confidence trace: the last hidden
state of every step is kept and scored again with the language-model head."""
import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(4)
torch.set_num_threads(1)

VOCAB, BEAMS, NEW = 40, 4, 10

cfg = GPT2Config(
    vocab_size=VOCAB, n_positions=48, n_embd=32, n_layer=2, n_head=4,
    initializer_range=0.25, bos_token_id=None, eos_token_id=None, pad_token_id=0,
)
model = GPT2LMHeadModel(cfg).eval()


class StepRecorder:
    """Collects the final hidden state of the newest position at each step."""

    def __init__(self, module):
        self.steps = []
        self.handle = module.register_forward_hook(self.record)

    def record(self, module, args, output):
        self.steps.append(output[:, -1].detach().clone())

    def close(self):
        self.handle.remove()


def token_confidences(out, steps, prompt_len):
    """Log-probability of every generated token of the best hypotheses."""
    rows = []
    for i, seq in enumerate(out.sequences):
        scores = []
        for t, token in enumerate(seq[prompt_len:]):
            hidden = steps[t][out.beam_indices[i, t]]
            scores.append(F.log_softmax(model.lm_head(hidden), dim=-1)[token])
        rows.append(torch.stack(scores))
    return torch.stack(rows)


prompts = torch.randint(1, VOCAB, (3, 5))
recorder = StepRecorder(model.transformer.ln_f)
try:
    with torch.no_grad():
        out = model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            num_beams=BEAMS,
            do_sample=False,
            max_new_tokens=NEW,
            min_new_tokens=NEW,
            length_penalty=1.0,
            return_dict_in_generate=True,
            output_scores=True,
        )
finally:
    recorder.close()

with torch.no_grad():
    conf = token_confidences(out, recorder.steps, prompts.shape[1])

gaps = []
for i in range(len(prompts)):
    least = conf[i].argmin().item()
    traced = conf[i].mean().item()
    reported = out.sequences_scores[i].item()
    gaps.append(abs(traced - reported))
    print(f"prompt {i}: tokens {out.sequences[i, prompts.shape[1]:].tolist()}")
    print(f"  least confident token #{least} (logp {conf[i, least]:.3f}); "
          f"mean logp {traced:.3f}, beam search says {reported:.3f}")
print(f"largest gap between trace and beam score: {max(gaps):.4f}")

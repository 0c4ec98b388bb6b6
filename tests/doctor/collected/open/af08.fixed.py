"""How far do the query activations drift from the base model while a LoRA adapter trains?"""
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(7)
torch.set_num_threads(1)


class QueryRecorder:
    def __init__(self, model):
        self.latest = {}
        self.handles = []
        for i, layer in enumerate(model.model.layers):
            self.handles.append(layer.self_attn.q_proj.register_forward_hook(self._save(i)))

    def _save(self, i):
        def hook(module, args, output):
            self.latest[i] = output.detach().clone()
        return hook

    def snapshot(self, model, ids):
        self.latest.clear()
        model.eval()
        with torch.no_grad():
            model(input_ids=ids)
        model.train()
        return dict(self.latest)


def fit(model, steps=25):
    params = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=5e-3)
    gen = torch.Generator().manual_seed(3)
    for step in range(steps):
        start = torch.randint(3, 40, (8, 1), generator=gen)
        ids = start + 2 * torch.arange(8)[None]
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        opt.step()
        opt.zero_grad()
    return loss.item()


base = LlamaForCausalLM(LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=3,
    num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=32,
    bos_token_id=1, eos_token_id=2, pad_token_id=0))
probe = torch.randint(3, 64, (4, 8))

recorder = QueryRecorder(base)
before = recorder.snapshot(base, probe)

# same network from here on, with low-rank updates on the query and value projections
model = get_peft_model(base, LoraConfig(
    r=4, lora_alpha=16, target_modules=["q_proj", "v_proj"], init_lora_weights=True))
print("trainable parameters:", sum(p.numel() for p in model.parameters() if p.requires_grad))
print("loss after training: %.4f" % fit(model))

for h in recorder.handles:
    h.remove()
recorder = QueryRecorder(model.base_model.model)
after = recorder.snapshot(model, probe)
for i in sorted(before):
    rel = (after[i] - before[i]).norm() / before[i].norm()
    print(f"layer {i}: relative drift of q_proj output {rel.item():.4f}")

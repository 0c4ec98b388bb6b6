"""Attach first and add LoRA adapters with PEFT afterwards. The hooks find the adapters.

Run `pip install "tenterhook[transformers]" peft` first.

    python examples/lora.py
"""

import torch
from peft import LoraConfig, inject_adapter_in_model
from transformers import GPT2Config, GPT2LMHeadModel

import tenterhook as th

torch.manual_seed(0)
torch.set_num_threads(1)
config = GPT2Config(
    n_layer=2, n_head=2, n_embd=16, vocab_size=50, n_positions=16, bos_token_id=0, eos_token_id=0
)  # fmt: skip
model = GPT2LMHeadModel(config)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rig = th.attach(model, th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(0.01)), optimizer=optimizer)

tokens = torch.randint(50, (4, 16))
model(tokens, labels=tokens).loss.backward()
optimizer.step()

inject_adapter_in_model(
    LoraConfig(target_modules=["c_attn"], r=2, fan_in_fan_out=True), model
)  # this freezes everything else
adapters = {name: parameter for name, parameter in model.named_parameters() if "lora_" in name}
optimizer.add_param_group({"params": list(adapters.values())})
for _ in range(5):
    optimizer.zero_grad()
    model(tokens, labels=tokens).loss.backward()
    optimizer.step()
    assert max(parameter.grad.norm() for parameter in adapters.values()) <= 0.01 + 1e-6, "the adapters were clipped"

for name in adapters:
    print(f"{name:52} fired {rig.ledger['clip'][name].fired} times")
assert all(rig.ledger["clip"][name].fired == 5 for name in adapters)

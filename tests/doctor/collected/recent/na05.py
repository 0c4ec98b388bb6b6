"""Add three control tokens to a small Llama and train them together with
LoRA adapters; the rows of the old vocabulary are meant to stay as they are."""
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
torch.set_num_threads(1)

OLD_VOCAB, NEW_TOKENS, SEQ = 50, 3, 14
TOTAL = OLD_VOCAB + NEW_TOKENS

cfg = LlamaConfig(
    vocab_size=OLD_VOCAB,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=4,
    max_position_embeddings=64,
    tie_word_embeddings=False,
)
base = LlamaForCausalLM(cfg)
base.resize_token_embeddings(TOTAL, mean_resizing=False)


def train_new_rows_only(module):
    keep = torch.zeros(TOTAL, 1)
    keep[OLD_VOCAB:] = 1.0
    return module.weight.register_hook(lambda grad: grad * keep)


def control_batch(gen):
    body = torch.randint(0, OLD_VOCAB, (12, SEQ - 1), generator=gen)
    kind = torch.randint(0, NEW_TOKENS, (12, 1), generator=gen)
    body[:, 1:] = (body[:, :1] + (kind + 1) * torch.arange(1, SEQ - 1)) % OLD_VOCAB
    return torch.cat([OLD_VOCAB + kind, body], dim=1)


train_new_rows_only(base.get_input_embeddings())
train_new_rows_only(base.get_output_embeddings())

lora = LoraConfig(
    r=4,
    lora_alpha=8,
    target_modules=["q_proj", "v_proj"],
    modules_to_save=["embed_tokens", "lm_head"],
)
model = get_peft_model(base, lora)

embed = model.get_input_embeddings()
table_before = embed.weight.detach().clone()

trainable = [p for p in model.parameters() if p.requires_grad]
optim = torch.optim.AdamW(trainable, lr=5e-3, weight_decay=0.0)
gen = torch.Generator().manual_seed(2)
model.train()
for step in range(30):
    ids = control_batch(gen)
    loss = model(input_ids=ids, labels=ids).loss
    optim.zero_grad()
    loss.backward()
    optim.step()
    if step % 10 == 0:
        print(f"step {step:2d} loss {loss.item():.3f}")

delta = (embed.weight.detach() - table_before).norm(dim=1)
print(f"final loss {loss.item():.3f}")
print(f"new rows moved by {delta[OLD_VOCAB:].mean():.4f}")
print(f"old rows moved by {delta[:OLD_VOCAB].mean():.4f}")

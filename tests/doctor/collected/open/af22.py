"""A tagger whose head was renamed: old checkpoints are translated while they are loaded."""
import os
import tempfile
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertModel, BertPreTrainedModel

torch.manual_seed(21)
torch.set_num_threads(1)


class Tagger(BertPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.classifier = torch.nn.Linear(config.hidden_size, config.num_labels)
        # checkpoints from before the rename call the last layer "tag_head"
        self.register_load_state_dict_pre_hook(Tagger.translate)
        self.post_init()

    @staticmethod
    def translate(module, state_dict, prefix, *unused):
        for key in list(state_dict):
            if key.startswith(prefix + "tag_head."):
                new = key.replace("tag_head.", "classifier.")
                state_dict[new] = state_dict.pop(key)

    def forward(self, input_ids, labels=None):
        hidden = self.bert(input_ids=input_ids).last_hidden_state
        logits = self.classifier(hidden)
        loss = None
        if labels is not None:
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return {"loss": loss, "logits": logits}


def old_checkpoint(folder):
    """Train for a moment and store the weights under the names of last year."""
    cfg = BertConfig(vocab_size=40, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                     num_attention_heads=4, max_position_embeddings=16, num_labels=3,
                     hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = Tagger(cfg).train()
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(30):
        ids = torch.randint(0, 40, (16, 8))
        loss = model(ids, labels=ids % 3)["loss"]
        loss.backward()
        opt.step()
        opt.zero_grad()
    cfg.save_pretrained(folder)
    weights = {k.replace("classifier.", "tag_head."): v.clone() for k, v in model.state_dict().items()}
    save_file(weights, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    return loss.item()


def accuracy(model):
    ids = torch.arange(40).repeat(4)[torch.randperm(160)].reshape(20, 8)
    with torch.no_grad():
        return (model(ids)["logits"].argmax(-1) == ids % 3).float().mean().item()


with tempfile.TemporaryDirectory() as folder:
    print(f"old model, last training loss {old_checkpoint(folder):.4f}")
    model = Tagger.from_pretrained(folder).eval()
    stored = load_file(os.path.join(folder, "model.safetensors"))["tag_head.weight"]
    same = torch.equal(model.classifier.weight, stored)
print("head taken over from the checkpoint:", same)
print(f"tagging accuracy after loading: {accuracy(model):.3f}")

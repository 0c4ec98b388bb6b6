"""Word-level LSTM language model, truncated backpropagation through time."""

import argparse

import torch
import torch.nn as nn

torch.set_num_threads(1)

TEXT = """
in the morning the cat sat on the mat and the dog slept by the door
in the evening the dog sat on the mat and the cat slept by the fire
at night the mouse ran over the mat and hid behind the door
"""


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp, nhid, nlayers, dropout=0.1):
        super(RNNModel, self).__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, nlayers, dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        self.nhid = nhid
        self.nlayers = nlayers
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)

    def forward(self, input, hidden):
        emb = self.drop(self.encoder(input))
        output, hidden = self.rnn(emb, hidden)
        decoded = self.decoder(self.drop(output))
        return decoded.view(-1, decoded.size(-1)), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return tuple(weight.new_zeros(self.nlayers, bsz, self.nhid) for _ in range(2))


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    return data.narrow(0, 0, nbatch * bsz).view(bsz, -1).t().contiguous()


def repackage_hidden(h):
    """Wraps hidden states in new tensors, to detach them from their history."""
    return tuple(v.detach() for v in h)


def get_batch(source, i, bptt):
    seq_len = min(bptt, len(source) - 1 - i)
    return source[i:i + seq_len], source[i + 1:i + 1 + seq_len].view(-1)


def main():
    parser = argparse.ArgumentParser(description='LSTM language model')
    parser.add_argument('--bptt', type=int, default=12)
    parser.add_argument('--batch_size', type=int, default=4)
    parser.add_argument('--epochs', type=int, default=3)
    parser.add_argument('--lr', type=float, default=5e-3)
    parser.add_argument('--seed', type=int, default=1111)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    words = TEXT.split() * 15
    vocab = {w: i for i, w in enumerate(sorted(set(words)))}
    train_data = batchify(torch.tensor([vocab[w] for w in words]), args.batch_size)

    model = RNNModel(len(vocab), ninp=24, nhid=32, nlayers=2)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=args.lr, alpha=0.95)

    for epoch in range(1, args.epochs + 1):
        model.train()
        hidden = model.init_hidden(args.batch_size)
        for batch, i in enumerate(range(0, train_data.size(0) - 1, args.bptt)):
            data, targets = get_batch(train_data, i, args.bptt)
            hidden = repackage_hidden(hidden)
            model.zero_grad()
            output, hidden = model(data, hidden)
            loss = criterion(output, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimizer.step()
            print('| epoch {:2d} | batch {:3d} | loss {!r}'.format(epoch, batch, loss.item()))

    print('checksum {!r}'.format(sum(p.detach().double().sum().item() for p in model.parameters())))


if __name__ == '__main__':
    main()

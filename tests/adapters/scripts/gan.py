from __future__ import print_function

import argparse
import math

import torch
import torch.nn as nn

torch.set_num_threads(1)

parser = argparse.ArgumentParser(description='least squares GAN on a ring')
parser.add_argument('--nz', type=int, default=8, help='size of the latent z vector')
parser.add_argument('--nf', type=int, default=32)
parser.add_argument('--batchSize', type=int, default=64)
parser.add_argument('--niter', type=int, default=60)
parser.add_argument('--lr', type=float, default=0.002)
parser.add_argument('--beta1', type=float, default=0.5)
parser.add_argument('--manualSeed', type=int, default=3)
opt = parser.parse_args()

torch.manual_seed(opt.manualSeed)


def sample_real(n):
    angle = torch.rand(n) * 2 * math.pi
    ring = torch.stack([angle.cos(), angle.sin()], dim=1)
    return ring + 0.05 * torch.randn(n, 2)


class Generator(nn.Module):
    def __init__(self):
        super(Generator, self).__init__()
        self.main = nn.Sequential(
            nn.Linear(opt.nz, opt.nf),
            nn.BatchNorm1d(opt.nf),
            nn.ReLU(True),
            nn.Linear(opt.nf, 2),
        )

    def forward(self, input):
        return self.main(input)


class Discriminator(nn.Module):
    def __init__(self):
        super(Discriminator, self).__init__()
        self.main = nn.Sequential(
            nn.Linear(2, opt.nf),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(opt.nf, opt.nf),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(opt.nf, 1),
        )

    def forward(self, input):
        return self.main(input).squeeze(1)


netG = Generator()
netD = Discriminator()
criterion = nn.MSELoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))
ones, zeros = torch.ones(opt.batchSize), torch.zeros(opt.batchSize)

for i in range(opt.niter):
    # (1) Update D network
    netD.zero_grad()
    errD_real = criterion(netD(sample_real(opt.batchSize)), ones)
    errD_real.backward()
    fake = netG(torch.randn(opt.batchSize, opt.nz))
    errD_fake = criterion(netD(fake.detach()), zeros)
    errD_fake.backward()
    errD = errD_real + errD_fake
    optimizerD.step()

    # (2) Update G network
    netG.zero_grad()
    errG = criterion(netD(fake), ones)
    errG.backward()
    optimizerG.step()
    print('[%d/%d] Loss_D: %r Loss_G: %r' % (i, opt.niter, errD.item(), errG.item()))

params = list(netG.parameters()) + list(netD.parameters())
print('checksum %r' % sum(p.detach().double().sum().item() for p in params))

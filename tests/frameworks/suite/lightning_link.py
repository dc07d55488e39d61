"""Lightning's ModelCheckpoint with save_top_k and its `last` link, and a resume from it."""

import os
import tempfile

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

# A checkpoint holds the path of its folder.
SAME_BYTES = []


class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 8)

    def training_step(self, batch, _):
        loss = (self.layer(batch) ** 2).mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def fit(folder, epochs, resume=None):
    pl.seed_everything(5, verbose=False)
    data = torch.utils.data.DataLoader(torch.randn(32, 32), batch_size=8)
    keep = ModelCheckpoint(dirpath=folder, filename="{epoch}-{step}", monitor="step", mode="max",
                           save_top_k=2, save_last="link", every_n_epochs=1)
    trainer = pl.Trainer(max_epochs=epochs, callbacks=[keep], logger=False, accelerator="cpu",
                         enable_progress_bar=False, enable_model_summary=False)
    module = Module()
    trainer.fit(module, data, ckpt_path=resume)
    return trainer, module


def save(folder):
    _, module = fit(os.path.join(folder, "checkpoints"), 4)
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def load(folder, expected):
    base = os.path.join(folder, "checkpoints")
    assert sorted(os.listdir(base)) == ["epoch=2-step=12.ckpt", "epoch=3-step=16.ckpt", "last.ckpt"], \
        os.listdir(base)
    last = os.path.join(base, "last.ckpt")
    assert os.path.islink(last) and os.path.basename(os.readlink(last)) == "epoch=3-step=16.ckpt"
    module = Module.load_from_checkpoint(last)
    for name, tensor in expected.items():
        assert torch.equal(tensor, module.state_dict()[name]), name
    with tempfile.TemporaryDirectory() as scratch:
        trainer, _ = fit(scratch, 5, resume=last)
        assert trainer.current_epoch == 5 and trainer.global_step == 20

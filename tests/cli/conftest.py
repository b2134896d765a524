"""Commands are run in this process, against a generated checkpoint that has a tokenizer."""

import pytest

from oracle.checkpoints import CheckpointSpec, write_checkpoint


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    spec = CheckpointSpec(vocab_size=320, with_tokenizer=True, max_position_embeddings=256)
    return write_checkpoint(spec, tmp_path_factory.mktemp("cli") / "checkpoint")


@pytest.fixture(scope="session")
def checkpoint_without_tokenizer(tmp_path_factory):
    return write_checkpoint(CheckpointSpec(), tmp_path_factory.mktemp("cli") / "bare")

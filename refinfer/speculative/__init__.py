"""Speculative decoding: guess the next tokens cheaply, and let the model verify all of them in one pass."""

from refinfer.speculative.draft_model import DraftModelProposer
from refinfer.speculative.ngram import NgramProposer
from refinfer.speculative.proposer import Draft, DraftRequest, Proposer
from refinfer.speculative.verifier import verify

__all__ = ["Draft", "DraftModelProposer", "DraftRequest", "NgramProposer", "Proposer", "verify"]

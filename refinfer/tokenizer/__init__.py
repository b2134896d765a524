"""How does text become token ids, and token ids text?"""

from refinfer.tokenizer.detokenizer import IncrementalDetokenizer
from refinfer.tokenizer.tokenizer import Tokenizer

__all__ = ["IncrementalDetokenizer", "Tokenizer"]

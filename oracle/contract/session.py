"""An engine in the dock: opened as a scenario says, only when it is not open like that already, with its referees."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from oracle.contract.drawing import Limits
from oracle.contract.findings import Finding, Findings, Kind
from oracle.contract.judging import judge_trial
from oracle.contract.recording import Against
from oracle.contract.referee import ModelReferee, Referee
from oracle.contract.scenario import EngineScenario
from oracle.contract.trial import Trial, run_trial
from oracle.contract.watched import WatchedEngine
from oracle.engines.adapter import EngineAdapter
from oracle.engines.declaration import EngineDeclaration
from oracle.errors import EngineCrashed, EngineError, EngineHung, ReferenceUnavailable
from oracle.families import FamilySpec, cached_family_checkpoint

SAFE_TOKEN_IDS = 100
"""Ids below it stand in the vocabulary of any model."""

OpenReferee = Callable[[Path, str], Referee | None]
"""Gives the referee of a checkpoint folder for an engine of a dtype; None for none."""


def open_model_referee(folder: Path, dtype: str) -> Referee | None:
    """Opens transformers' model as referee; None for a folder that transformers cannot load."""
    try:
        return ModelReferee(folder, dtype)
    except ReferenceUnavailable:
        return None


@dataclass(frozen=True)
class Model:
    """A checkpoint that an engine is opened with.

    Attributes:
        folder: Where it lies; None for a server's own, of which nothing is known.
        limits: What requests are drawn within.
        referee: What tokens are judged by.
    """

    folder: Path | None
    limits: Limits
    referee: Referee | None


class EngineSession:
    """One engine with everything that is needed to judge it.

    Args:
        engine: The engine.
        declaration: What it says of itself.
        folder: A checkpoint instead of generated ones.
        open_referee: Gives the referee of a checkpoint.
        against: Gives what another engine gave.
    """

    def __init__(
        self,
        engine: EngineAdapter,
        declaration: EngineDeclaration,
        *,
        folder: Path | None = None,
        open_referee: OpenReferee = open_model_referee,
        against: Against | None = None,
    ) -> None:
        self.engine = engine if isinstance(engine, WatchedEngine) else WatchedEngine(engine)
        self.declaration = declaration
        self._folder = folder
        self._open_referee = open_referee
        self._against = against
        self._model_by_family: dict[FamilySpec | None, Model] = {}
        self._opened: str | None = None

    def model(self, family: FamilySpec | None) -> Model:
        """Gives the checkpoint of a scenario."""
        if family not in self._model_by_family:
            self._model_by_family[family] = self._load(family)
        return self._model_by_family[family]

    def _load(self, family: FamilySpec | None) -> Model:
        folder = self._folder if family is None else cached_family_checkpoint(family)
        if folder is None and not self.declaration.families:
            limits = Limits(SAFE_TOKEN_IDS, self.declaration.max_model_len, is_known=False)
            return Model(None, limits, None)
        if folder is None:
            message = "the scenario generates no checkpoint; name one with --model"
            raise ReferenceUnavailable(message)
        has_tokens = self.declaration.units == "tokens"
        referee = self._open_referee(folder, self.declaration.dtype) if has_tokens else None
        return Model(folder, _limits_of(folder, self.declaration), referee)

    def open(self, scenario: EngineScenario, *, fresh: bool = False) -> Model:
        """Opens the engine as a scenario says, unless it is open like that.

        Args:
            scenario: Says the model and the settings.
            fresh: Open it anew in any case, so that nothing is left of earlier runs.

        Raises:
            EngineError: The engine raised, crashed or hung.
            Refused: It does not take the model or the settings.
        """
        model = self.model(scenario.family)
        key = json.dumps([str(model.folder), scenario.knobs], sort_keys=True)
        if fresh or key != self._opened:
            self._opened = None
            self.engine.open("" if model.folder is None else str(model.folder), scenario.knobs)
            self._opened = key
        return model

    def judge(self, scenario: EngineScenario, findings: Findings, *, fresh: bool = False) -> Trial | None:
        """Runs a scenario, and lets every check look at it; an engine that does not answer is a finding too.

        Raises:
            Refused: The engine does not take the model or the settings.
        """
        try:
            model = self.open(scenario, fresh=fresh)
            trial = run_trial(
                self.engine,
                scenario,
                self.declaration,
                model.referee,
                eos_token_ids=model.limits.eos_token_ids,
                vocab_size=model.limits.vocab_size if model.limits.is_known else None,
            )
        except EngineError as error:
            findings.see("alive")
            findings.add(self.obituary(error))
            return None
        findings.see("alive")
        judge_trial(trial, findings, None if self._against is None else self._against(scenario))
        return trial

    def obituary(self, error: EngineError) -> Finding:
        """Gives the finding about an engine that did not answer; it is opened anew afterwards."""
        self._opened = None
        blame = type(error).__name__ if isinstance(error, EngineCrashed | EngineHung) else _first_words(str(error))
        return Finding("alive", Kind.WRONG, f"{type(error).__name__}: {error}", blame=(blame,))


def _first_words(text: str) -> str:
    """Gives what is the same each time one error comes, numbers left out."""
    return "".join(letter for letter in text[:60] if not letter.isdigit())


def _limits_of(folder: Path, declaration: EngineDeclaration) -> Limits:
    """Reads what requests to a checkpoint may be, from its own files."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    generation = folder / "generation_config.json"
    eos = config.get("eos_token_id")
    if generation.exists():
        eos = json.loads(generation.read_text(encoding="utf-8")).get("eos_token_id", eos)
    eos_token_ids = tuple(eos) if isinstance(eos, list) else () if eos is None else (eos,)
    longest = min(declaration.max_model_len, int(config.get("max_position_embeddings") or declaration.max_model_len))
    return Limits(int(config["vocab_size"]), longest, eos_token_ids)

"""Settings of a run that paraphrases hypotheses: the prompt, the search, and the run itself."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from generation.config import ProblemSettings, check_problem_settings, require
from merge_dataset.settings import INPUT, REQUIRED, RUNNING, check_settings, setting, setting_of
from merge_metric.models.pair_model import ModelRequest

TEMPERATURES: Final = (0.3, 0.6)
"""Smallest and greatest temperature of Arakelyan et al. (2024), section 4.1."""

INSTRUCTION: Final = (
    "Rephrase the following sentence while preserving its original meaning: {hypothesis}"
)

_paraphrase: Final[Any] = partial(setting, commands="paraphrase")
_generator: Final[Any] = partial(_paraphrase, panel="Text generator")
_model: Final[Any] = partial(_paraphrase, panel="NLI model M", affects_output=False)
_search: Final[Any] = partial(_paraphrase, panel="Search")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParaphraseConfig(ProblemSettings):
    """Everything that determines a run; validated on creation.

    Beams are divided into groups, with a penalty for words of earlier groups (Vijayakumar et
    al., 2016, arXiv:1610.02424), and within a group with a penalty for beams of the same parent
    (Li, Monroe and Jurafsky, 2016, arXiv:1611.08562).

    Penalties are in nats, subtracted from log-probabilities at the request's temperature. So a
    penalty of 1 at 0.3–0.6 corresponds to one of 0.3–0.6 at temperature 1: within 0.2–0.8, where
    Vijayakumar et al. found group beam search to work well.
    """

    generator: str = _generator(
        "google/flan-t5-xl",
        "Seq2seq or chat model: Hub id, folder, .gguf file.",
        affects_output=False,
    )
    """By default that of Arakelyan et al. (2024), section 4.1."""
    gguf_file: str | None = _generator(
        None, "A GGUF file in that folder or repository.", affects_output=False, rare=True
    )
    prompt: str = _generator(INSTRUCTION, "Prompt for the generator, with {hypothesis} in it.")

    # NLI model: answers the problems, and decides what is a paraphrase
    model: str = _model(REQUIRED, "Model to test: folder, Hub id, .gguf file.")
    model_kind: Literal["classifier", "lm"] | None = _model(
        None, "Kind of the model; found out by default.", rare=True
    )
    model_revision: str | None = _model(None, "Revision of the model on the Hub.", rare=True)
    label_order: str | None = setting_of(
        ModelRequest,
        "label_order",
        commands="paraphrase",
        panel="NLI model M",
        affects_output=False,
    )

    k: int = _search(10, "Paraphrases wanted of each hypothesis.", minimum=1, metavar="N")
    max_rounds: int = _search(
        5, "Most rounds of rewriting, until there are k.", minimum=1, rare=True
    )
    """Each round has a new temperature."""
    temperature_min: float = setting(TEMPERATURES[0], "Smallest temperature drawn.")
    temperature_max: float = setting(TEMPERATURES[1], "Greatest temperature drawn.")
    num_beams: int = _search(20, "Candidates of a round.", option="--beams", minimum=1, rare=True)
    num_beam_groups: int = _search(
        10,
        "Groups of beams; each avoids the words of the others.",
        option="--groups",
        minimum=1,
        rare=True,
    )
    diversity_penalty: float = _search(
        1.0, "Penalty in nats for a word of an earlier group.", minimum=0, rare=True
    )
    sibling_penalty: float = _search(
        0.5, "Penalty in nats for each better continuation of a beam.", minimum=0, rare=True
    )
    max_new_tokens: int = _search(40, "Longest candidate.", minimum=1, rare=True)
    rng_seed: int = _search(0, "Seed of the random temperatures.", rare=True)

    batch_size: int | None = _paraphrase(
        None, "Hypotheses rewritten at a time.", panel=RUNNING, minimum=1, rare=True
    )
    """By default a number that suits the device. Hypotheses of a batch affect each other only by
    rounding, which may decide between two words."""
    device: str = setting_of(ModelRequest, "device", commands="paraphrase", affects_output=False)
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = _paraphrase(
        "auto",
        "Precision of the generator; auto is bfloat16 on CUDA, else float32.",
        panel=RUNNING,
        affects_output=False,
        rare=True,
    )
    run: str = setting(
        "runs/paraphrases",
        "Folder of the run. Default: runs/SOURCE_paraphrases.",
        panel=INPUT,
        affects_output=False,
    )

    def __post_init__(self) -> None:
        """Check every value; raise ValueError or TypeError that names field and remedy."""
        check_settings(self)
        for name in ("temperature_min", "temperature_max", "diversity_penalty", "sibling_penalty"):
            object.__setattr__(self, name, float(getattr(self, name)))
        require(
            (
                "{hypothesis}" in self.prompt,
                f"prompt: expected {{hypothesis}} where the sentence is to stand: {self.prompt!r}",
            ),
            (
                0 < self.temperature_min <= self.temperature_max < float("inf"),
                "temperature: expected two numbers above 0, the smaller one first, got "
                f"{self.temperature_min} and {self.temperature_max}",
            ),
            (
                self.num_beams % self.num_beam_groups == 0,
                f"num_beams: expected a multiple of num_beam_groups ({self.num_beam_groups}), "
                f"so that groups are of one size, got {self.num_beams}",
            ),
        )
        check_problem_settings(self)

    @property
    def judge(self) -> ModelRequest:
        """The NLI model."""
        return ModelRequest(
            model=self.model,
            kind=self.model_kind,
            revision=self.model_revision,
            device=self.device,
            label_order=self.label_order,
        )

    @property
    def decoding(self) -> dict[str, float]:
        """Settings that determine the candidates together with the temperature."""
        names = ("num_beams", "num_beam_groups", "diversity_penalty", "sibling_penalty",
                 "max_new_tokens")  # fmt: skip
        return {name: getattr(self, name) for name in names}

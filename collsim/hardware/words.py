"""A GPU by what people call it: ``H100 SXM 80GB``, ``NVIDIA A100-SXM4-40GB``, ``Tesla T4``, ``RTX 4070 Ti SUPER``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from collsim.hardware.model import Gpu

__all__ = ["find_gpu", "split_words"]

# fmt: off
NOISE = frozenset(
    {
        "nvidia", "amd", "intel", "geforce", "tesla", "quadro", "instinct", "radeon", "gpu", "gpus", "accelerator",
        "graphics", "card", "hbm", "hbm2", "hbm2e", "hbm3", "hbm3e", "gddr6", "gddr6x", "gddr7", "superchip", "gcd",
        "oam", "module", "tensor", "core", "vf", "vm", "mig",
    }
)
# fmt: on
"""Words that tell no GPU from another."""

_MEMORY = re.compile(r"([0-9]{1,4})(?:gb|gib|g)?\Z")
_FORMS = re.compile(r"(sxm[0-9]?|pcie|pci|nvl|superchip|oam)\Z")


def split_words(text: str) -> list[str]:
    """Return the words of a name in small letters.

    Examples
    --------
    >>> split_words("NVIDIA A100-SXM4-80GB"), split_words("H100 SXM5 80 GB (part of a node)")
    (['nvidia', 'a100', 'sxm4', '80gb'], ['h100', 'sxm5', '80gb', 'part', 'of', 'a', 'node'])
    """
    text = re.sub(r"\b([0-9]{1,4})[\s_-]+(gi?b)\b", r"\1\2", text.lower().replace("pci-e", "pcie"))
    text = re.sub(r"(?<=[a-z0-9])(sxm[0-9]?|pcie)(?![a-z])", r" \1", text)
    return re.findall(r"[a-z0-9]+", text)


def find_gpu(words: Sequence[str], families: Mapping[str, Sequence[Gpu]]) -> tuple[Gpu, list[str]] | None:
    """Return the GPU that some words name, and the words that said nothing about it; None if there is none.

    Parameters
    ----------
    words
        As `split_words` returns them.
    families
        GPUs by family (and by the other names of it), in the order in which an unqualified name finds them.
    """
    found = _family(words, families)
    if found is None:
        return None
    first, last, name = found
    rest = [word for word in (*words[:first], *words[last:]) if word not in NOISE]
    known = list(families[name])
    forms = [match[1] for word in rest if (match := _FORMS.match(word))]
    rest = [word for word in rest if not _FORMS.match(word)]
    for form in forms:
        close = [gpu for gpu in known if gpu.form == form] or [gpu for gpu in known if gpu.form[:3] == form[:3]]
        if close:
            known = close
            break
    else:
        if forms:  # a form that this family does not have
            rest.append(forms[0])
    left = []
    for word in rest:
        match = _MEMORY.match(word)
        of_memory = [gpu for gpu in known if match and gpu.memory == int(match[1]) * 10**9]
        known = of_memory or known
        if not of_memory and not _named_after(known[0], word):
            left.append(word)
    return known[0], left


def _named_after(gpu: Gpu, word: str) -> bool:
    """Whether a GPU is sold by the memory of its CPU, as the GH200 of 96 GB is."""
    return gpu.family == "gh200" and word in ("120gb", "480gb")


def _family(words: Sequence[str], families: Iterable[str]) -> tuple[int, int, str] | None:
    """Return where the longest name of a family begins and ends among the words, and that name."""
    known = set(families)
    best: tuple[int, int, str] | None = None
    for first in range(len(words)):
        for last in range(first + 1, min(first + 5, len(words)) + 1):
            joined = "".join(words[first:last])
            if joined in known and (best is None or len(joined) > len(best[2])):
                best = (first, last, joined)
    return best

"""Clusters of the catalogue, as NCCL sees them."""

from __future__ import annotations

import pytest

from collsim.errors import InputError
from collsim.hardware import cluster
from collsim.nccl import choice, machine_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dgx-h100", {"sm": 90, "gpus": 8, "nodes": 1, "nvlink": 370.8, "switch": True, "nics": 0, "pcie": 48.0}),
        ("2 x dgx-a100", {"nvlink": 240.0, "nics": 8, "nic": 25.0, "nic_path": "PIX", "cpu": "amd"}),
        ("2 x p5", {"nics": 8, "nic": 50.0, "nic_latency": 75.0, "transport": "efa2"}),  # 4 adapters a GPU joined
        ("dgx-1-v100:3", {"nvlink": 0.0, "switch": False, "mesh": ((0, 1, 1), (1, 0, 2), (1, 2, 0))}),
        ("2 x dgx-h100:1", {"nvlink": 0.0, "mesh": None, "gpus": 1}),
        ("t4x2", {"nvlink": 0.0, "mesh": None, "pcie": 12.0}),
        ("gb200-nvl72", {"gpus": 72, "nvlink": 721.8, "cpu": "arm"}),
    ],
)  # fmt: skip
def test_what_nccl_sees(text: str, expected: dict[str, object]) -> None:
    found = machine_of(cluster(text))
    for name, value in expected.items():
        assert getattr(found, name) == (pytest.approx(value) if isinstance(value, float) else value), name


def test_what_it_would_run() -> None:
    node = machine_of(cluster("dgx-h100"))
    assert [str(choice(node, "all_reduce", size)) for size in (2**20, 2**21)] == ["Ring/LL", "NVLS/Simple"]


def test_gpus_of_others_are_refused() -> None:
    with pytest.raises(InputError, match="expected GPUs of NVIDIA, got mi300x; RCCL has tables of its own"):
        machine_of(cluster("mi300x-8"))

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collsim.errors import InputError
from collsim.units import (
    INT64_MAX,
    format_bandwidth,
    format_size,
    format_time,
    parse_bandwidth,
    parse_nccl_size,
    parse_size,
    parse_time,
)

PARSERS = (parse_bandwidth, parse_time, parse_size)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("450GB/s", 450 * 10**9),
        ("450GBps", 450 * 10**9),
        ("400Gbps", 50 * 10**9),
        ("400 Gb/s", 50 * 10**9),
        ("400Gbit/s", 50 * 10**9),
        ("25GiB/s", 25 * 2**30),
        ("8Gibit/s", 2**30),
        ("15.75GB/s", 15_750_000_000),
        ("1e2GB/s", 10**11),
        ("12kB/s", 12_000),
        ("12KB/s", 12_000),
        ("  1 B/s ", 1),
        (50e9, 50 * 10**9),
        (7, 7),
        (np.int64(7), 7),
        (np.float64(7.6), 8),
    ],
)
def test_bandwidths(text, value):
    assert parse_bandwidth(text) == value
    assert type(parse_bandwidth(text)) is int


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2us", 2_000_000),
        ("2µs", 2_000_000),
        ("2μs", 2_000_000),
        ("500 ns", 500_000),
        ("0.3us", 300_000),
        ("1.5ms", 1_500_000_000),
        ("3ps", 3),
        ("1s", 10**12),
        ("0s", 0),
        (1e-6, 1_000_000),
        (0.7e-6, 700_000),
        (0, 0),
    ],
)
def test_times(text, value):
    assert parse_time(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1GiB", 2**30),
        ("1GB", 10**9),
        ("1kB", 1000),
        ("1KB", 1000),
        ("64 KiB", 65536),
        ("1.5MiB", 3 * 2**19),
        ("4096", 4096),
        ("0B", 0),
        (0, 0),
        (1e9, 10**9),
    ],
)
def test_sizes(text, value):
    assert parse_size(text) == value


def test_bits_and_bytes_are_told_apart_by_case():
    assert parse_bandwidth("8Gbps") * 8 == parse_bandwidth("8GBps")


@pytest.mark.parametrize(
    ("parse", "value", "message"),
    [
        (
            parse_bandwidth,
            "50",
            r"'50': expected a unit of bytes/s or bits/s .*'50GB/s' \(bytes\) or '50Gbps' \(bits\)",
        ),
        (parse_bandwidth, "50gbps", "did you mean 'Gbps'"),
        (parse_bandwidth, "50gb/s", "did you mean 'Gb/s'"),
        (parse_bandwidth, "50 Gbp", "did you mean 'Gbps'"),
        (parse_bandwidth, "16GT/s", "GT/s counts transfers of a lane"),
        (parse_bandwidth, "16 GT/s", "GT/s counts transfers of a lane"),
        (parse_bandwidth, "0GB/s", "at least 1B/s"),
        (parse_bandwidth, 0, "at least 1B/s"),
        (parse_bandwidth, "1bps", "at least 1B/s"),
        (parse_bandwidth, "-1GB/s", "negative"),
        (parse_bandwidth, "2us", "'us' is not a unit of bytes/s"),
        (parse_bandwidth, "1e400GB/s", "too large"),
        (parse_time, "5", "'5us' or '5ns'"),
        (parse_time, "2Us", "did you mean 'us'"),
        (parse_time, "-2us", "negative"),
        (parse_time, "1e-15s", "at least 1ps"),
        (parse_time, "107000000000s", "too large"),
        (parse_time, "1e9999999s", "expected a time"),
        (parse_size, "128M", r"did you mean '128MiB' \(2\*\*20\) or '128MB' \(10\*\*6\)"),
        (parse_size, "1.5k", r"did you mean '1.5KiB' \(2\*\*10\) or '1.5kB'"),
        (parse_size, "8Gb", "'b' is a bit"),
        (parse_size, "1.5B", "whole number of bytes"),
        (parse_size, 1.5, "whole number of bytes"),
        (parse_size, -1, "negative"),
        (parse_nccl_size, "1MB", "as nccl-tests takes it"),
        (parse_nccl_size, "1T", "as nccl-tests takes it"),
        (parse_nccl_size, "-1", "as nccl-tests takes it"),
        (parse_nccl_size, "1.0001K", "whole number of bytes"),
        (parse_nccl_size, "99999999999G", "too large"),
    ],
)
def test_refusals_say_what_is_meant(parse, value, message):
    with pytest.raises(InputError, match=message) as caught:
        parse(value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "value", ["", " ", "nan", "inf", float("nan"), float("inf"), True, None, [1], "GB/s", "1__0B", "٣us"]
)
def test_what_is_no_quantity_is_refused(parse, value):
    with pytest.raises(InputError, match="expected a "):
        parse(value)


def test_a_long_text_is_refused_and_not_repeated():
    with pytest.raises(InputError) as caught:
        parse_size("1" * 10_000)
    assert len(str(caught.value)) < 250


def test_nccl_suffixes_are_binary_in_either_case():
    assert [parse_nccl_size(text) for text in ("8", "1k", "1K", "1m", "2G", "1.5M", "1GiB")] == [
        8,
        2**10,
        2**10,
        2**20,
        2**31,
        3 * 2**19,
        2**30,
    ]


@pytest.mark.parametrize(
    ("parse", "write", "least"),
    [(parse_bandwidth, format_bandwidth, 1), (parse_time, format_time, 0), (parse_size, format_size, 0)],
)
@settings(deadline=None)
@given(data=st.data())
def test_what_is_written_reads_back(parse, write, least, data):
    value = data.draw(
        st.integers(least, INT64_MAX)
        | st.builds(lambda a, b: min(max(least, a * 10**b), INT64_MAX), st.integers(0, 999), st.integers(0, 18))
        | st.builds(lambda a, b: min(max(least, a << b), INT64_MAX), st.integers(0, 999), st.integers(0, 60))
    )
    assert parse(write(value)) == value


@settings(deadline=None)
@given(st.text(max_size=12) | st.from_regex(r"[0-9.eE+-]{1,8} ?[kKMGTmunµp]?i?[bBs](ps|/s|it/s)?", fullmatch=True))
def test_any_text_is_read_or_refused_in_one_line(text):
    for parse in (*PARSERS, parse_nccl_size):
        try:
            value = parse(text)
        except InputError as error:
            value = 0 if len(str(error).splitlines()) == 1 else -1
        assert 0 <= value <= INT64_MAX


def test_format_takes_the_shorter_prefix():
    assert [format_size(2**20), format_size(10**6), format_size(1000), format_size(1025)] == [
        "1MiB",
        "1MB",
        "1kB",
        "1.025kB",
    ]
    assert [format_time(t) for t in (1, 1500, 2_000_000, 10**12)] == ["1ps", "1.5ns", "2us", "1s"]
    assert [format_bandwidth(b) for b in (50 * 10**9, 12_500_000, 25 * 2**30)] == ["50GB/s", "12.5MB/s", "25GiB/s"]

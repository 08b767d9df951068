"""Paths that cannot be written are refused in one line, whoever writes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import collsim
from collsim.errors import InputError
from collsim.outputs import output_path, part_of, write_whole
from collsim.plot import save_picture, utilisation_bars

RUN = collsim.run("all_reduce", collsim.topology.ring(3, bandwidth="50GB/s", latency="1us"), 3000)
WRITERS = {
    ".html": RUN.to_html,
    ".json": RUN.to_perfetto,
    ".png": lambda path: save_picture(utilisation_bars(RUN), path),
}


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize(
    ("name", "message"),
    [
        (None, "expected the path of a file, got None"),
        (3, "expected the path of a file, got 3"),
        ("a\0b", "expected the path of a file"),
        ("no/such/x", "no such directory; make it first"),
        ("x.txt", "expected a name that ends in"),
    ],
)
def test_what_is_no_file_to_write_is_refused(tmp_path, monkeypatch, suffix, name, message):
    monkeypatch.chdir(tmp_path)
    path = name + suffix if isinstance(name, str) and not name.endswith(".txt") else name
    with pytest.raises(InputError, match=message):
        WRITERS[suffix](path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", WRITERS)
def test_long_names_names_in_bytes_and_links_are_written(tmp_path, suffix):
    long = tmp_path / ("n" * 240 + suffix)
    WRITERS[suffix](long)
    assert long.stat().st_size > 100
    WRITERS[suffix](bytes(tmp_path / f"b{suffix}"))
    assert (tmp_path / f"b{suffix}").stat().st_size > 100
    link = tmp_path / f"link{suffix}"
    link.symlink_to(tmp_path / f"target{suffix}")
    WRITERS[suffix](link)
    assert link.is_symlink()
    assert (tmp_path / f"target{suffix}").stat().st_size > 100
    assert not list(tmp_path.glob(".*"))


def test_a_directory_is_no_file(tmp_path):
    (tmp_path / "a.html").mkdir()
    with pytest.raises(InputError, match=r"player: .*a\.html: expected a file, got a directory"):
        output_path(tmp_path / "a.html", "player", (".html",))


def test_a_file_that_cannot_take_its_place_leaves_nothing(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(InputError, match=r"thing: .*: cannot be written: Is a directory"):
        write_whole(tmp_path / "a", b"data", "thing")
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]
    assert part_of(Path("a/b.json")).parent == Path("a")


def test_no_trace_is_written_where_one_of_several_cannot_be(tmp_path):
    RUN.to_kineto(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 3
    before = {name: (tmp_path / name).read_bytes() for name in names[:2]}
    (tmp_path / names[2]).unlink()
    (tmp_path / names[2]).mkdir()
    other = collsim.run("all_reduce", RUN.topology, 6000)
    with pytest.raises(InputError, match=rf"{names[2]}.*: cannot be written: it is a folder"):
        other.to_kineto(tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in names[:2]} == before


def test_pipes_and_devices_are_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "a.html")
    (tmp_path / "b.html").symlink_to("/dev/null")
    for name in ("a.html", "b.html"):
        with pytest.raises(InputError, match="expected a file, got a device or a pipe"):
            RUN.to_html(tmp_path / name)
    assert stat.S_ISFIFO((tmp_path / "a.html").stat().st_mode)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path):
    path = tmp_path / "a.html"
    path.write_text("old")
    path.chmod(0o600)
    RUN.to_html(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_size > 100


@pytest.mark.parametrize("suffix", WRITERS)
def test_names_are_cut_by_bytes(tmp_path, suffix):
    path = tmp_path / ("\N{GRINNING FACE}" * 60 + suffix)
    WRITERS[suffix](path)
    assert path.stat().st_size > 100
    assert list(tmp_path.iterdir()) == [path]

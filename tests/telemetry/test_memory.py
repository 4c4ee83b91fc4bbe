"""What a process may hold, read from files as kernels and container runtimes write them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.telemetry.memory import Memory

PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 2**20
V2 = "31 24 0:27 {inside} /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
V1 = "35 31 0:32 {inside} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"


class Tree:
    """A file system with what is read of it."""

    def __init__(self, root: Path, mount: str, group: str, machine: int = 4096 * MIB) -> None:
        self.root = root
        self.write("proc/meminfo", f"MemTotal: {machine // 1024} kB\nMemFree: 5 kB\n")
        self.write("proc/self/mountinfo", f"22 1 8:1 / / rw - ext4 /dev/sda rw\n{mount}\n")
        self.write("proc/self/cgroup", f"{group}\n")
        self.resident("self", 100 * MIB)

    def write(self, name: str, text: object) -> None:
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}")

    def resident(self, process: str, size: int, shared: int = 0) -> None:
        self.write(f"proc/{process}/statm", f"99999 {size // PAGE} {shared // PAGE} 1 0 5 0")

    def v2(self, folder: str, limit: object, used: int, cached: int = 0, high: object = "max") -> None:
        for name, value in (("max", limit), ("high", high), ("current", used)):
            self.write(f"{folder}/memory.{name}", f"{value}\n")
        self.write(f"{folder}/memory.stat", f"anon 5\ninactive_file {cached}\nactive_file 7\n")


def test_a_container_s_limit_is_the_tightest_of_those_around_it(tmp_path: Path) -> None:
    tree = Tree(tmp_path, V2.format(inside="/"), "0::/kubepods/pod1/c1")
    tree.v2("sys/fs/cgroup/kubepods/pod1/c1", 1024 * MIB, 150 * MIB)
    tree.v2("sys/fs/cgroup/kubepods/pod1", 400 * MIB, 150 * MIB)
    tree.v2("sys/fs/cgroup/kubepods", "max", 2000 * MIB)
    reading = Memory(root=tmp_path).read()
    assert (reading.own, reading.limit) == (100 * MIB, 400 * MIB)
    assert reading.share == pytest.approx(150 / 400)


@pytest.mark.parametrize(
    ("group", "limit", "share"),
    [
        ((200 * MIB, 190 * MIB, 70 * MIB), 200, 120 / 200),  # files that are only cached do not count
        ((1000 * MIB, 950 * MIB), 1000, 100 / 1000),  # a neighbour in the container is not the gateway's to bound
        ((1000 * MIB, 10 * MIB, 0, 500 * MIB), 500, 100 / 500),  # a limit that throttles is one
    ],
    ids=["cached", "neighbour", "throttles"],
)
def test_what_counts_in_a_container(tmp_path: Path, group: tuple[int, ...], limit: int, share: float) -> None:
    Tree(tmp_path, V2.format(inside="/"), "0::/").v2("sys/fs/cgroup", *group)
    reading = Memory(root=tmp_path).read()
    assert (reading.limit, reading.share) == (limit * MIB, pytest.approx(share))


def test_workers_and_helpers_count_and_their_libraries_once(tmp_path: Path) -> None:
    tree = Tree(tmp_path, V2.format(inside="/"), "0::/")
    tree.v2("sys/fs/cgroup", 1000 * MIB, 10 * MIB)
    tree.resident("77", 50 * MIB)
    reading = Memory(lambda: [77, 78], 4, tmp_path).read()  # 78 has ended meanwhile
    assert (reading.own, reading.share) == (150 * MIB, pytest.approx(600 / 1000))
    tree.resident("self", 100 * MIB, shared=30 * MIB)
    reading = Memory(processes=4, root=tmp_path).read()
    assert (reading.together, reading.share) == (310 * MIB, pytest.approx(310 / 1000))


@pytest.mark.parametrize(
    ("inside", "folder"), [("/docker/abc", "sys/fs/cgroup/memory"), ("/", "sys/fs/cgroup/memory/docker/abc")]
)
def test_version_1_in_and_out_of_a_container(tmp_path: Path, inside: str, folder: str) -> None:
    tree = Tree(tmp_path, V1.format(inside=inside), "9:name=systemd:/\n4:memory,hugetlb:/docker/abc\n0::/")
    tree.write(f"{folder}/memory.limit_in_bytes", 250 * MIB)
    tree.write(f"{folder}/memory.usage_in_bytes", 200 * MIB)
    tree.write(f"{folder}/memory.stat", f"inactive_file 1\ntotal_inactive_file {50 * MIB}\n")
    assert Memory(root=tmp_path).read().share == pytest.approx(150 / 250)


def test_without_a_limit_the_machine_is_it(tmp_path: Path) -> None:
    tree = Tree(tmp_path, V1.format(inside="/"), "4:memory:/", machine=1000 * MIB)
    tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", 9223372036854771712)
    tree.write("sys/fs/cgroup/memory/memory.usage_in_bytes", 900 * MIB)
    reading = Memory(root=tmp_path).read()
    assert (reading.limit, reading.share) == (1000 * MIB, pytest.approx(0.1))


def test_limits_are_read_anew(tmp_path: Path) -> None:
    tree = Tree(tmp_path, V2.format(inside="/"), "0::/")
    tree.v2("sys/fs/cgroup", 1000 * MIB, 10 * MIB)
    memory = Memory(root=tmp_path)
    assert memory.read().limit == 1000 * MIB
    tree.v2("sys/fs/cgroup", 2000 * MIB, 10 * MIB)
    assert memory.read().limit == 2000 * MIB


def test_this_process_holds_something() -> None:
    reading = Memory().read()
    assert 2**20 < reading.own < reading.limit

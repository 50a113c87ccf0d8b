from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace

import pytest

from lakehouse.errors import InvalidInputError
from lakehouse.maintenance.compaction.file_groups import CompactionOptions, plan_groups, tail_groups
from lakehouse.scan.scan_tasks import FileScanTask
from lakehouse.spec.manifests.data_file import (
    CONTENT_EQUALITY_DELETES,
    CONTENT_POSITION_DELETES,
    DataFile,
)

MB = 1 << 20


def task(name, size, *, partition=(1,), spec_id=0, sequence=1, deletes=(), rows=100):
    file = DataFile(
        file_path=name,
        record_count=rows,
        file_size_in_bytes=size,
        partition=partition,
        spec_id=spec_id,
    )
    return FileScanTask(
        data_file=file, deletes=tuple(deletes), sequence_number=sequence, length=size
    )


def delete(name, rows, content=CONTENT_POSITION_DELETES):
    return DataFile(content=content, file_path=name, record_count=rows, file_size_in_bytes=10)


def groups(tasks, target=100 * MB, current_spec_id=0, recent=None, wanted=None, **options):
    extra = {} if wanted is None else {"wanted": wanted}
    none_by_age = SimpleNamespace(
        metadata=SimpleNamespace(default_spec_id=current_spec_id),
        home=lambda _spec_id, _partition: None,
        place=lambda spec_id, partition: (SimpleNamespace(spec_id=spec_id), partition),
        holds=lambda _spec_id: False,
    )
    return plan_groups(
        tasks,
        CompactionOptions(**options),
        target_bytes=target,
        layout=none_by_age,
        recent_sequence_number=recent,
        **extra,
    )


def names(found):
    return [sorted(file.file_path for file in group.files) for group in found]


def test_five_small_files_are_a_group_and_four_are_not():
    assert groups([task(f"f{i}", MB) for i in range(4)]) == []
    (group,) = groups([task(f"f{i}", MB) for i in range(5)])
    assert (len(group.tasks), group.expected_files, group.reason, group.bytes) == (
        5,
        1,
        "small files",
        5 * MB,
    )


def test_two_files_that_fill_more_than_a_target_are_worth_it_only_when_files_vanish():
    assert groups([task("a", 74 * MB), task("b", 74 * MB)]) == []
    assert names(groups([task("a", 52 * MB), task("b", 52 * MB)])) == [["a", "b"]]


def test_partitions_are_never_mixed():
    tasks = [task(f"{p}{i}", MB, partition=(p,)) for p in "xy" for i in range(5)]
    assert sorted(names(groups(tasks))) == [
        [f"x{i}" for i in range(5)],
        [f"y{i}" for i in range(5)],
    ]


def test_null_partitions_group_too():
    assert len(groups([task(f"f{i}", MB, partition=(None,)) for i in range(5)])) == 1


def test_files_near_the_target_stay():
    assert groups([task(f"f{i}", 80 * MB) for i in range(20)]) == []


def test_a_file_far_above_the_target_is_split():
    (group,) = groups([task("big", 1000 * MB)])
    assert (group.expected_files, group.reason) == (10, "large files")


def test_groups_are_bounded():
    found = groups([task(f"f{i:02}", 10 * MB) for i in range(100)], max_group_bytes=200 * MB)
    assert [group.bytes <= 200 * MB for group in found] == [True] * 5
    assert sum(len(group.tasks) for group in found) == 100


def test_deletes_beyond_the_ratio_make_a_candidate_of_any_file():
    full = task("a", 100 * MB, deletes=[delete("d", 30)])
    little = task("b", 100 * MB, deletes=[delete("e", 29)])
    assert names(groups([full, little])) == [["a"]]


def test_deletes_of_a_whole_partition_are_shared_among_its_files():
    shared = delete("d", 40)
    assert (
        groups([task("a", 100 * MB, deletes=[shared]), task("b", 100 * MB, deletes=[shared])]) == []
    )
    shared = delete("d", 60)
    assert names(
        groups([task("a", 100 * MB, deletes=[shared]), task("b", 100 * MB, deletes=[shared])])
    ) == [["a", "b"]]


def test_an_equality_delete_always_counts():
    assert names(
        groups([task("a", 100 * MB, deletes=[delete("d", 1, CONTENT_EQUALITY_DELETES)])])
    ) == [["a"]]


def test_files_of_earlier_specs_are_rewritten_unless_told_otherwise():
    tasks = [task("old", 100 * MB, spec_id=0), task("new", 100 * MB, spec_id=1)]
    assert names(groups(tasks, current_spec_id=1)) == [["old"]]
    assert groups(tasks, current_spec_id=1, rewrite_old_specs=False) == []


def test_recent_partitions_are_left_alone():
    tasks = [task(f"x{i}", MB, partition=("x",), sequence=i) for i in range(6)] + [
        task(f"y{i}", MB, partition=("y",), sequence=1) for i in range(6)
    ]
    assert names(groups(tasks, recent=5)) == [[f"y{i}" for i in range(6)]]


def test_the_callers_filter_limits_the_candidates():
    tasks = [task(f"f{i}", MB) for i in range(10)]
    (group,) = groups(tasks, wanted=lambda one: one.data_file.file_path < "f5")
    assert names([group]) == [["f0", "f1", "f2", "f3", "f4"]]


def test_rewrite_all_takes_everything():
    assert names(groups([task("a", 100 * MB), task("b", 100 * MB)], rewrite_all=True)) == [
        ["a", "b"]
    ]


def test_the_best_group_comes_first():
    tasks = [task(f"x{i}", MB, partition=("x",)) for i in range(5)] + [
        task(f"y{i}", MB, partition=("y",)) for i in range(50)
    ]
    assert [len(group.tasks) for group in groups(tasks)] == [50, 5]


@pytest.mark.parametrize("width", [2, 3, 8])
def test_a_tail_stays_short_and_its_rows_move_seldom(width):
    """Of 1,000 batches of other sizes each, in two partitions."""
    chance = random.Random(width)
    files, written, moved = [], 0, 0
    for batch in range(1, 1001):
        for partition in (1,), (2,):
            rows = chance.choice([1, 10, 1000])
            written += rows
            files.append(task(f"{batch}{partition}", 10, partition=partition, rows=rows))
        for group in tail_groups(files, width, target_bytes=MB):
            assert len({one.data_file.partition for one in group.tasks}) == 1
            rows = sum(one.data_file.record_count for one in group.tasks)
            moved += rows
            files = [one for one in files if one not in group.tasks]
            files.append(task(f"joined{batch}", 10, partition=group.partition, rows=rows))
        tiers = Counter(
            (one.data_file.partition, floor_log(one.data_file.record_count, width)) for one in files
        )
        assert max(tiers.values()) < width
    assert sum(one.data_file.record_count for one in files) == written
    assert moved <= written * floor_log(written, width)


def floor_log(number, base):
    return next(power for power in range(99) if base ** (power + 1) > number)


def test_files_that_are_large_or_have_deletes_are_no_tail():
    files = [task(f"f{number}", 10) for number in range(3)]
    large, changed = task("large", MB), task("changed", 10, deletes=[delete("d", 1)])
    [group] = tail_groups([large, *files, changed], 3, target_bytes=MB)
    assert [one.data_file.file_path for one in group.tasks] == ["f0", "f1", "f2"]
    assert not tail_groups([large, *files[1:], changed], 3, target_bytes=MB)


@pytest.mark.parametrize(
    "options",
    [
        {"min_input_files": 0},
        {"target_file_size_bytes": 0},
        {"max_file_size_ratio": 0.9},
        {"min_file_size_ratio": 0},
        {"max_workers": 0},
    ],
)
def test_options_out_of_range_are_refused(options):
    with pytest.raises(InvalidInputError):
        CompactionOptions(**options)

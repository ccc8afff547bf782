"""Tests what every object store must do. Derive a test class from `StoreConformance`, or `BrowsableConformance`, and
give it a `store` fixture."""

from __future__ import annotations

import array
import threading

import pyarrow as pa
import pytest

from penstock.storage.opening import probe
from penstock.storage.store import BrowsableStore, ObjectExists, ObjectMissing, ObjectStore, RangeMissing


class StoreConformance:
    @pytest.fixture
    def store(self) -> ObjectStore:
        raise NotImplementedError("derive a class, and give it a store")

    def test_what_was_put_is_there_whole_and_in_ranges(self, store: ObjectStore) -> None:
        store.put("shared/a", [b"0123", memoryview(b"456"), b"", b"789"])
        assert store.get("shared/a") == b"0123456789"
        assert store.get("shared/a", 3, 4) == b"3456"
        assert store.get("shared/a", 8) == b"89"
        assert store.get("shared/a", 0, 0) == store.get("shared/a", 10) == store.get("shared/a", 10, 0) == b""
        assert store.size("shared/a") == 10

    def test_buffers_of_any_item_size_are_put_as_bytes(self, store: ObjectStore) -> None:
        numbers = array.array("q", [1, 2])
        batch = pa.record_batch({"x": [1, 2, 3]}).serialize()
        store.put("shared/a", [memoryview(numbers), memoryview(batch)])
        assert store.get("shared/a") == numbers.tobytes() + batch.to_pybytes()

    def test_what_was_written_may_change_at_once(self, store: ObjectStore) -> None:
        """Writes more than two parts of an upload, each piece in the same memory."""
        writer, memory = store.writer("shared/a"), bytearray(1 << 20)
        for number in range(20):
            memory[:] = bytes([number]) * len(memory)
            writer.write([memoryview(memory)[:1000], memoryview(memory)[1000:]])
        memory[:] = bytes(len(memory))
        writer.finish()
        assert store.get("shared/a") == b"".join(bytes([number]) * len(memory) for number in range(20))

    def test_an_object_of_very_many_parts(self, store: ObjectStore) -> None:
        parts = [bytes([i % 251]) * (i % 7) for i in range(5000)]
        store.put("shared/a", parts)
        assert store.get("shared/a") == b"".join(parts)

    def test_an_object_that_grows_is_what_was_put_at_once(self, store: ObjectStore) -> None:
        writer = store.writer("shared/a")
        piece = bytearray(b"0123")
        writer.write([memoryview(piece), b"", memoryview(b"4")])
        piece[:] = b"5678"
        writer.write([])
        writer.write([memoryview(piece)])
        writer.finish()
        assert store.get("shared/a") == b"012345678"
        writer.abort()
        assert store.get("shared/a") == b"012345678", "what is finished is no longer the writer's"

    def test_an_object_that_is_given_up_leaves_nothing(self, store: ObjectStore) -> None:
        begun, untouched = store.writer("shared/a"), store.writer("shared/b")
        begun.write([b"half"])
        begun.abort()
        untouched.abort()
        assert store.list("") == []
        store.put("shared/a", [b"another"])
        assert store.get("shared/a") == b"another"

    def test_an_object_of_nothing_that_grows(self, store: ObjectStore) -> None:
        store.writer("a").finish()
        assert store.get("a") == b""

    def test_an_object_cannot_grow_under_a_name_that_is_taken(self, store: ObjectStore) -> None:
        store.put("shared/a", [b"first"])
        writer = store.writer("shared/a")
        with pytest.raises(ObjectExists):
            writer.write([b"second"])
            writer.finish()
        writer.abort()
        assert store.get("shared/a") == b"first"

    def test_empty_objects_exist(self, store: ObjectStore) -> None:
        store.put("a", [])
        store.create("b", b"")
        assert store.get("a") == store.get("b") == b""
        assert store.list("") == ["a", "b"]

    def test_a_range_beyond_the_end_is_refused(self, store: ObjectStore) -> None:
        store.put("a", [b"0123"])
        with pytest.raises(RangeMissing, match="a"):
            store.get("a", 2, 3)
        with pytest.raises(RangeMissing):
            store.get("a", 5, 0)

    def test_missing_objects_are_named(self, store: ObjectStore) -> None:
        store.put("shared/there", [b"x"])
        for path in ("shared/a", "elsewhere/a"):
            with pytest.raises(ObjectMissing, match=path):
                store.get(path)
            with pytest.raises(ObjectMissing, match=path):
                store.size(path)

    def test_the_second_creation_fails_and_changes_nothing(self, store: ObjectStore) -> None:
        store.create("log/1", b"first")
        with pytest.raises(ObjectExists, match="log/1"):
            store.create("log/1", b"second, and longer")
        assert store.get("log/1") == b"first"

    def test_put_never_replaces(self, store: ObjectStore) -> None:
        store.create("shared/a", b"first")
        with pytest.raises(ObjectExists, match="shared/a"):
            store.put("shared/a", [b"second"])
        assert store.get("shared/a") == b"first"

    def test_of_many_creators_one_wins_and_all_others_hear_of_it(self, store: ObjectStore) -> None:
        creators = 8
        start = threading.Barrier(creators)
        won: list[int] = []
        lost: list[int] = []

        def create(number: int) -> None:
            start.wait(timeout=30)
            try:
                store.create("log/7", b"%d" % number * 1000)
                won.append(number)
            except ObjectExists:
                lost.append(number)

        threads = [threading.Thread(target=create, args=(i,)) for i in range(creators)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=30)
        assert len(won) == 1 and len(lost) == creators - 1
        assert store.get("log/7") == b"%d" % won[0] * 1000

    def test_lists_are_sorted_and_of_folders_not_of_prefixes(self, store: ObjectStore) -> None:
        for path in ("shared/b", "shared/a", "shared2/c", "chk-1/_metadata", "log/00000000000000000002", "shared/d/e"):
            store.put(path, [b"x"])
        assert store.list("shared") == ["shared/a", "shared/b", "shared/d/e"]
        assert store.list("shar") == []
        assert store.list("nothing") == []
        assert store.list("chk-1") == ["chk-1/_metadata"]
        assert len(store.list("")) == 6

    def test_folders_are_those_directly_below(self, store: ObjectStore) -> None:
        for path in ("jobs/b/log/1", "jobs/a/chk-1/_metadata", "jobs/file", "jobs2/c/log/1"):
            store.put(path, [b"x"])
        assert store.folders("jobs") == ["a", "b"]
        assert store.folders("") == ["jobs", "jobs2"]
        assert store.folders("nothing") == []

    def test_of_two_racing_creators_one_wins_every_time(self, store: ObjectStore) -> None:
        rounds = 10
        start = threading.Barrier(2)
        won: list[set[int]] = [set(), set()]

        def create(number: int) -> None:
            for sequence in range(rounds):
                start.wait(timeout=30)
                try:
                    store.create(f"log/{sequence}", b"%d" % number)
                    won[number].add(sequence)
                except ObjectExists:
                    assert store.get(f"log/{sequence}") == b"%d" % (1 - number), "the loser sees what has won"

        threads = [threading.Thread(target=create, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        assert won[0] | won[1] == set(range(rounds)) and not won[0] & won[1]

    def test_delete_removes_exactly_one_object_and_may_be_repeated(self, store: ObjectStore) -> None:
        store.put("shared/a", [b"x"])
        store.put("shared/ab", [b"x"])
        store.delete("shared/a")
        store.delete("shared/a")
        store.delete("never/there")
        assert store.list("") == ["shared/ab"]
        store.delete("shared/ab")
        assert store.list("") == []
        store.put("shared/a", [b"again"])
        assert store.get("shared/a") == b"again"

    def test_many_are_deleted_with_one_call(self, store: ObjectStore) -> None:
        paths = [f"shared/{number}" for number in range(20)]
        for path in paths:
            store.put(path, [b"x"])
        store.delete_all([*paths[1:], "never/there", paths[1]])
        assert store.list("") == paths[:1]
        store.delete_all([])
        store.delete_all(paths[:1])
        assert store.list("") == []

    def test_writers_and_deleters_of_one_folder_do_not_hinder_each_other(self, store: ObjectStore) -> None:
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for i in range(30):
                    path = f"chk-1/deep/{number}-{i}"
                    store.put(path, [b"x"])
                    assert store.get(path) == b"x"
                    store.delete(path)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        assert not failures
        assert store.list("") == []

    @pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", "../a", "a/../b", ".", "a/.hidden", "a\0b"])
    def test_paths_that_lead_elsewhere_are_refused(self, store: ObjectStore, path: str) -> None:
        with pytest.raises(ValueError, match="not a path"):
            store.put(path, [b"x"])
        with pytest.raises(ValueError, match="not a path"):
            store.create(path, b"x")

    def test_the_probe_passes_and_leaves_nothing_behind(self, store: ObjectStore) -> None:
        probe(store)
        probe(store)
        assert store.list("") == []


class BrowsableConformance(StoreConformance):
    """Tests what every store that `open_store` returns must do."""

    def test_a_moved_object_has_its_new_name_only(self, store: BrowsableStore) -> None:
        store.put("_hidden/x/a b", [b"x" * 1000])
        store.move("_hidden/x/a b", "day=1%2F2/part é")
        assert store.list("") == ["day=1%2F2/part é"]
        found = store.stat("day=1%2F2/part é")
        assert (found.path, found.size_bytes) == ("day=1%2F2/part é", 1000)
        assert store.get("day=1%2F2/part é") == b"x" * 1000
        for name in ("_hidden/x/a b", "never"):
            with pytest.raises(ObjectMissing):
                store.move(name, "day=1%2F2/other")
            with pytest.raises(ObjectMissing):
                store.stat(name)
        assert store.list("") == ["day=1%2F2/part é"]

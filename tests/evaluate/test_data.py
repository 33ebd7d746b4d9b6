"""Records from every kind of file and from the hub, and what is said of wrong ones."""

import gzip
import json
import sys
import types

import pytest

from sake_jax.evaluate.data import Hub, records

RECORDS = [{"id": 1, "text": "one\u2028line\r\n"}, {"id": 2, "text": "zwei – ü"}]
LINES = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in RECORDS)
YAML = """
- id: 1
  text: "one\\u2028line\\r\\n"
- {id: 2, text: "zwei – ü"}
"""


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("some.jsonl", LINES),
        ("blank.jsonl", "\n" + LINES.replace("\n", "\n  \n")),
        ("some.json", json.dumps(RECORDS)),
        ("some.yaml", YAML),
        ("some.yml", YAML),
    ],
    ids=["lines", "blank lines", "json", "yaml", "yml"],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_every_kind_of_file(tmp_path, name, content, zipped):
    path = tmp_path / (f"{name}.gz" if zipped else name)
    path.write_bytes(gzip.compress(content.encode()) if zipped else content.encode())
    assert records(path, ("id", "text")) == RECORDS
    assert records(str(path), ("id",), limit=1) == RECORDS[:1]
    assert records(path, ("id",), limit=9) == RECORDS


def test_plain_texts_become_records_where_that_is_asked(tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("Once upon a time \n\n  Tim had\n")
    found = records(path, ("prompt",), text="prompt")
    assert found == [{"prompt": "Once upon a time "}, {"prompt": "  Tim had"}]
    with pytest.raises(ValueError, match=r"prompts.txt, line 1 must be a record, got 'Once upon"):
        records(path, ("prompt",))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.jsonl",
            '{"id": 1, "text": "x"}\n\n{"id": 2, "prompt": "y"}',
            r"a\.jsonl, line 3 must have 'id', 'text', got \['id', 'prompt'\]; add 'text'",
        ),
        ("a.jsonl", '{"id": null, "text": "x"}', r"line 1 must have .*; add 'id'"),
        ("a.json", '[{"id": 1}]', r"a\.json, record 1 must have .*; add 'text'"),
        ("a.json", '{"id": 1}', r"a\.json must hold a list, got 'dict'"),
        ("a.json", LINES, r"a\.json must be JSON, got 'Extra data.*one record a line \.jsonl"),
        ("a.jsonl", '{"id": 1,\n', r"a\.jsonl, line 1 must be JSON"),
        ("a.yaml", "id: 1", r"a\.yaml must hold a list"),
        ("a.yaml", "[id: 1", r"a\.yaml must be YAML, got .*line 1.*; mend that place"),
        ("a.jsonl.gz", "{}", r"a\.jsonl\.gz must be gzipped UTF-8, got Not a gzipped file"),
        ("a.csv", "id,text", r"a\.csv must end with one of \.jsonl, \.json"),
        ("a.jsonl", "", "data must hold records"),
        ("a.json", "[]", "data must hold records"),
    ],
)
def test_wrong_files(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ValueError, match=f"(?s){message}"):
        records(path, ("id", "text"))


def test_files_that_are_not_text(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"id": "\xe4"}')
    with pytest.raises(ValueError, match=r"a\.jsonl must be UTF-8, got .*0xe4.*; write it anew"):
        records(tmp_path / "a.jsonl", ("id",))
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(b"[]")[:-6])
    with pytest.raises(ValueError, match=r"b\.json\.gz must be gzipped UTF-8, got Compressed file"):
        records(tmp_path / "b.json.gz", ("id",))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="check the path"):
        records(tmp_path / "none.jsonl", ("id",))
    with pytest.raises(ValueError, match="data must be a file"):
        records(None, ("id",))


def test_the_hub(monkeypatch):
    asked = []

    def load_dataset(name, config, split):
        asked.append((name, config, split))
        return iter(RECORDS)

    fake = types.SimpleNamespace(load_dataset=load_dataset)
    monkeypatch.setitem(sys.modules, "datasets", fake)
    hub = Hub("owner/name", "main", "test")
    assert records(None, ("id", "text"), hub=hub, limit=1) == RECORDS[:1]
    assert asked == [("owner/name", "main", "test")]
    with pytest.raises(ValueError, match="owner/name, test record 1 must have 'code'"):
        records(None, ("code",), hub=hub)


def test_the_hub_out_of_reach(monkeypatch):
    def load_dataset(name, config, split):
        raise RuntimeError("no route")

    fake = types.SimpleNamespace(load_dataset=load_dataset)
    monkeypatch.setitem(sys.modules, "datasets", fake)
    with pytest.raises(
        ValueError, match=r"owner/name must come from the hub, got no route; .*file"
    ):
        records(None, ("id",), hub=Hub("owner/name", None, "test"))


def test_the_hub_without_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match=r"owner/name needs the package datasets; .*name a file"):
        records(None, ("id",), hub=Hub("owner/name", None, "test"))

"""`handrail.testing.script_file` and `document`: scripts in files, and what is wrong with them."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from handrail.errors import ScriptError
from handrail.limits import TokenUsage
from handrail.testing import Call, Expect, Outcome, Reply, Script, script_file
from handrail.testing.script_file import parse_script, read_script
from tests.wording import Wording

EVERYTHING = """
replies:
  - text: I shall read the notes.
    calls:
      - {name: read_file, arguments: {path: notes.md, lines: [1, 2], deep: {on: yes, at: 2026-01-01}}}
      - {name: read_file, arguments: '{"path": ', id: broken}
      - name: list_files
    usage: {input: 120, output: 15, cached: 3}
    expect:
      instructions: [Refund desk]
      tools: [read_file, write_file]
  - output: {total: 3, share: 1e-1, rate: .5, ok: true, none: ~, hex: 0x1F, many: 1_000}
    expect:
      texts: [buy milk]
      messages:
        call-1: ok
        broken: {failed: [malformed JSON]}
        call-3: {ok: [notes.md, plan.md]}
  - {within: call-3, text: Two files.}
"""


def test_a_file_says_everything_that_a_script_can_say(tmp_path: Path) -> None:
    """Read by YAML 1.2: `on` and `yes` are text, and so is a date."""
    file = tmp_path / "desk.yaml"
    file.write_text(EVERYTHING, encoding="utf-8")
    deep = {"on": "yes", "at": "2026-01-01"}
    messages = {
        "call-1": Outcome.ok(),
        "broken": Outcome.failed("malformed JSON"),
        "call-3": Outcome.ok("notes.md", "plan.md"),
    }
    output = {"total": 3, "share": 0.1, "rate": 0.5, "ok": True, "none": None, "hex": 31, "many": 1000}
    assert read_script(file) == Script(
        [
            Reply(
                text="I shall read the notes.",
                calls=[
                    Call("read_file", {"path": "notes.md", "lines": [1, 2], "deep": deep}),
                    Call("read_file", '{"path": ', id="broken"),
                    Call("list_files"),
                ],
                usage=TokenUsage(120, 15, 3),
                expect=Expect(instructions=("Refund desk",), tools=("read_file", "write_file")),
            ),
            Reply(output=output, expect=Expect(texts=("buy milk",), messages=messages)),
            Reply(text="Two files.", within="call-3"),
        ],
        name="desk.yaml",
    )


def test_the_example_of_the_module_is_a_script() -> None:
    """What the docstring shows can be copied."""
    text = (script_file.__doc__ or "").partition("\n\n")[2]
    assert len(parse_script(text).replies) == 3


def test_numbers_that_json_does_not_have_are_read_all_the_same() -> None:
    """A model may send them, and the runtime must refuse them."""
    script = parse_script("replies: [{output: {a: .inf, b: -.inf, c: .nan, d: 010, e: -0o17}}]")
    output = script.replies[0].output or {}
    assert [output["a"], output["b"], output["d"], output["e"]] == [math.inf, -math.inf, 10, -15]
    assert math.isnan(output["c"])


FAULTS = {
    "unknown key": "replies:\n  - txt: x",
    "key like no other": "steps: []",
    "twice": "replies: []\nreplies: []",
    "no replies": "{}",
    "empty": "# nothing",
    "no mapping": "- text: x",
    "no list": "replies: {text: x}",
    "no text": "replies: [{text: [x]}]",
    "no name": "replies: [{calls: [{id: x}]}]",
    "arguments": "replies: [{calls: [{name: x, arguments: [1]}]}]",
    "outcome": "replies: [{expect: {messages: {a: fine}}}]",
    "two outcomes": "replies: [{expect: {messages: {a: {}}}}]",
    "usage": "replies: [{usage: {input: many}}]",
    "usage true": "replies: [{usage: {input: true}}]",
    "usage less": "replies: [{usage: {output: -1}}]",
    "no yaml": "replies: [",
    "no character": "replies: \x07",
    "two documents": "replies: []\n---\nreplies: []",
    "itself": "replies: [{output: &a {b: *a}}]",
}


@pytest.mark.parametrize("text", FAULTS.values(), ids=FAULTS)
def test_a_fault_is_told_with_its_place(text: str, wording: Wording) -> None:
    """File, line and column, what is wrong, and what would be right."""
    with pytest.raises(ScriptError) as caught:
        parse_script(text, name="desk")
    assert str(caught.value) == wording


def test_a_file_in_another_encoding_is_refused(tmp_path: Path, wording: Wording) -> None:
    """The error says where, and what to do."""
    file = tmp_path / "desk.yaml"
    file.write_bytes("replies: [{text: é}]".encode("latin-1"))
    with pytest.raises(ScriptError) as raised:
        read_script(file)
    assert str(raised.value) == wording


def test_what_is_no_file_of_a_fitting_size_is_refused_at_once(tmp_path: Path, wording: Wording) -> None:
    """A pipe is not waited for, and a file of any size is not read."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "large.yaml").write_bytes(b"#" * 1_000_001)
    for path in (folder, folder / "pipe", Path("/dev/zero"), folder / "large.yaml"):
        with pytest.raises(ScriptError) as raised:
            read_script(path)
        assert str(raised.value) == wording

"""`handrail.testing.script_file` and `yaml_tree`: scripts in files, and what is wrong with them."""

from __future__ import annotations

import math
import os
import re
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
    "unknown key": (
        "replies:\n  - txt: x",
        "desk:2:5: a reply has no key 'txt'. Did you mean 'text'? The keys are text,",
    ),
    "key like no other": ("steps: []", "desk:1:1: a script has no key 'steps'. The keys are replies."),
    "twice": ("replies: []\nreplies: []", "desk:2:1: the key 'replies' stands here twice"),
    "no replies": ("{}", "desk:1:1: a script has the key 'replies'"),
    "empty": ("# nothing", "desk is empty"),
    "no mapping": ("- text: x", "desk:1:1: a script is a mapping"),
    "no list": ("replies: {text: x}", "desk:1:10: replies is a list; write replies: [...]"),
    "no text": ("replies: [{text: [x]}]", "desk:1:18: text is due here"),
    "no name": ("replies: [{calls: [{id: x}]}]", "desk:1:20: a call has the key 'name'"),
    "arguments": ("replies: [{calls: [{name: x, arguments: [1]}]}]", "desk:1:41: this value is a mapping"),
    "outcome": ("replies: [{expect: {messages: {a: fine}}}]", "desk:1:35: 'fine' is not an outcome; write ok, failed,"),
    "two outcomes": ("replies: [{expect: {messages: {a: {}}}}]", "desk:1:35: an outcome is either ok or failed"),
    "usage": ("replies: [{usage: {input: many}}]", "desk:1:27: input is a number of tokens, 0 or more"),
    "usage true": ("replies: [{usage: {input: true}}]", "desk:1:27: input is a number"),
    "usage less": ("replies: [{usage: {output: -1}}]", "desk:1:28: output is a number"),
    "usage list": ("replies: [{usage: {output: [1]}}]", "desk:1:28: output is a number"),
    "no yaml": ("replies: [", "desk:1:11: expected the node content, but found '<stream end>'"),
    "no character": ("replies: \x07", "desk: "),
    "two documents": ("replies: []\n---\nreplies: []", "desk:2:1: but found another document"),
    "itself": ("replies: [{output: &a {b: *a}}]", "desk:1:20: this value holds itself"),
}


@pytest.mark.parametrize("text, told", FAULTS.values(), ids=FAULTS)
def test_a_fault_is_told_with_its_place(text: str, told: str) -> None:
    """File, line and column, what is wrong, and what would be right."""
    with pytest.raises(ScriptError) as caught:
        parse_script(text, name="desk")
    assert str(caught.value).startswith(told)


def test_an_alias_may_stand_for_a_value_that_was_given_before() -> None:
    """What is said twice need be written once."""
    script = parse_script("replies: [{output: {a: &a {x: 1}, b: *a}}]")
    assert script.replies[0].output == {"a": {"x": 1}, "b": {"x": 1}}


def test_a_key_with_nothing_behind_it_says_nothing() -> None:
    """Neither the text `null`, nor arguments that are none."""
    assert parse_script("replies: [{text: , calls: [{name: x, arguments: ~}]}]") == Script((Reply(calls=[Call("x")]),))


def test_a_file_in_another_encoding_is_refused(tmp_path: Path, wording: Wording) -> None:
    """The error says where, and what to do."""
    file = tmp_path / "desk.yaml"
    file.write_bytes("replies: [{text: é}]".encode("latin-1"))
    with pytest.raises(ScriptError) as raised:
        read_script(file)
    assert str(raised.value) == wording


def test_what_is_no_file_of_a_fitting_size_is_refused_at_once(tmp_path: Path) -> None:
    """A pipe is not waited for, and a file of any size is not read."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large.yaml").write_bytes(b"#" * 1_000_001)
    for path, told in {
        tmp_path: "this is a folder; a script is a text file",
        tmp_path / "pipe": "pipe: this is a device or pipe; a script is a text file",
        Path("/dev/zero"): "zero: this is a device or pipe",
        tmp_path / "large.yaml": "large.yaml: the file has more than 1,000,000 bytes; a script is a text file",
    }.items():
        with pytest.raises(ScriptError, match=re.escape(told)):
            read_script(path)


def test_a_file_that_is_not_there_is_the_systems_error(tmp_path: Path) -> None:
    """It is no fault of a script."""
    with pytest.raises(FileNotFoundError):
        read_script(tmp_path / "nowhere.yaml")

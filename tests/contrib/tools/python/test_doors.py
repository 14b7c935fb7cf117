"""One script of evaluations through every entry point: the same messages, and the same files after it."""

from __future__ import annotations

from handrail.adapters.tool_executor import ToolExecutor
from handrail.contrib.tools import AstevalSection, PythonEvaluated
from handrail.filesystem import InMemoryFilesystem
from handrail.prompt import Prompt, PromptTemplate
from handrail.runtime import Session, ToolInvoked
from handrail.testing import Call, Reply, Script
from tests.scenarios.doors import DOORS, Answer, Door, every_door


def _evaluate(code: str) -> Call:
    return Call("evaluate_python", {"code": code})


SCRIPT = Script(
    [
        Reply(
            calls=[
                _evaluate("print('hi')\n1 + 1"),
                _evaluate("write_text('kept.txt', 'kept')"),
                _evaluate("write_text('lost.txt', 'lost')\n1 / 0"),
                _evaluate("read_text('kept.txt')"),
                _evaluate("x ="),
                Call("evaluate_python", '{"code": '),
                Call("evaluate_python", {"code": 7}),
                Call("evaluate_python", {"cod": "1"}),
                Call("evaluate_pyton", {"code": "1"}),
            ]
        ),
        Reply(calls=[_evaluate(f"write_text('{number}.txt', '{number}')\nlen(list_files())") for number in range(4)]),
        Reply(text="Done."),
    ]
)


def played(door: Door) -> tuple[list[Answer], dict[str, str], tuple[PythonEvaluated, ...], list[bool]]:
    """What the model reads, the files, the results in the session, and what was recorded."""
    files, session = InMemoryFilesystem(), Session(session_id="desk")
    template = PromptTemplate[None](ns="tests", key="python", sections=[AstevalSection(files)])
    answers = door.play(SCRIPT, ToolExecutor(prompt=Prompt(template), session=session))
    texts = {stat.path: files.read_text(stat.path) for stat in files.list()}
    return answers, texts, session[PythonEvaluated].all(), [event.success for event in session[ToolInvoked]]


@every_door
def test_one_script_leaves_the_same_through_every_door(door: Door) -> None:
    """Calls of one reply run one after the other, and each is rolled back by itself."""
    answers, texts, values, recorded = played(door)
    assert (answers, texts, values, recorded) == played(DOORS["own loop"])
    assert recorded == [True, True, False, True, False, False, False, False, False, True, True, True, True]
    assert texts == {"kept.txt": "kept"} | {f"{number}.txt": str(number) for number in range(4)}
    assert [value.value for value in values] == ["2", "", '"kept"', "2", "3", "4", "5"]

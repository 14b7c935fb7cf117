"""Names that others rely on, and names that must not have two meanings."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from inspect import Parameter, signature

import pytest

from handrail import errors
from tests.architecture.sources import Source, listed, python_sources

STORED = """
    add_step approval cut_result delimiter_secret edit_file effect_applied evaluate_python feedback_given
    file_edited file_excerpt file_list file_moved file_removed file_written files_found files_known
    glob_files grant grep_files lines_found list_files made_agent move_file open_request open_sections plan
    postponed_call program_ended python_evaluated read_file read_plan read_result remove_file
    requested_call run_command said sanitized sent_back setup_plan shell_execute shell_run tainted
    tool_invoked tool_succeeded undo_message undo_registration update_step write_file
"""
"""The names of stored types, but for `handrail.`: they stand in databases, so none changes, and none goes."""

FACES = {
    "handrail": "ToolExecutor store tool",
    "handrail.adapters.mcp": """AskTool ClientAnswer ExecutorSource HttpSettings McpConnection McpServer McpServerError
        McpToolsSection ToolServer ToolSettings UndoneBy ask_client serve_stdio server""",
    "handrail.adapters.pydantic_ai": """HandrailCapability HandrailToolset PipelineCapability PromptResponse
        PydanticAIAdapter RUN_CONTEXT StoredHistory tool_context""",
    "handrail.agents": """AgentFile Answer ApprovalRules Asker BUILT_INS CallEnded CallStarted CallWaits
        Decision Entry GatedCall Judgement Listener LoadedAgent Project PythonOptions QuestionAsked
        QuestionDecided Registry Rule RunEnded RunEvent RunOptions RunResult RunStarted RunWarned SandboxOptions
        TextDelta current_run files_toolset judge_call load_agent parse_agent_file parse_rules python_toolset
        read_agent_file read_rules sandbox_toolset shell_toolset toolset_factory""",
    "handrail.cli": "main",
    "handrail.contrib.tools": """AddStep AstevalSection Bubblewrap EditFile EvaluatePython FileEdited
        FileExcerpt FileList FileMoved FileRemoved FileWritten FilesFound GIT_READING GlobFiles GrepFiles LinesFound
        ListFiles MoveFile Plan PlanCompleted PlanStatus PlanStep PlanningStrategy PlanningToolsSection Podman
        PodmanSandboxSection ProgramEnded PythonEvaluated PythonFault READING ReadFile ReadPlan
        RemoveFile SandboxLimits SandboxSection SetupPlan ShellExecute ShellRule ShellRun
        ShellToolsSection StepStatus UpdateStep VfsLimits VfsToolsSection WriteFile""",
    "handrail.errors": """AgentDepthError AgentError AgentFileError AppliedMeanwhileError ApprovalRulesError
        BudgetExceededError CallIdReusedError CallPostponed CircularResourceError CommitInDoubtError
        CompletionCheckError DeadlineExceededError DeveloperMistake DiscoveryError DispatchError DocumentError
        DryRunEndedError DumpError DuplicateBindingError DurableEngineError EffectNotApplied EffectUncertain
        FactoryError FilesystemBusyError FilesystemError HandrailError IncompleteReplyError
        InvalidArgumentError InvalidReturnError JournalError LeaseLostError LedgerError LoopBlockedError
        ModelUnreachableError ModelVisibleError OverridesError ParseError PathConflictError PathEscapeError
        PathNotFoundError PlanDeviatedError PlanRefusedError ProjectError
        ReplayEndedError
        PromptEvaluationError PromptRenderError PromptValidationError ProviderError ReadOnlyViolation
        RecordingError ReducerError RegistryError ResolutionError ResourceError ResourceUseError RollbackError
        RootMissingError RunAbortedError SandboxError SchemaError ScriptError SecondStoreError SessionBusyError
        SessionError SessionLockedError SessionLostError SessionNotFoundError SessionUseError SignatureFault
        SnapshotError StoreClosedError StoreCorruptError StoreError StoreReadOnlyError StoreUnavailableError
        StoreVersionError ToolConflictError ToolSignatureError ToolValidationError TransactionClosedError
        TurnConflictError UnboundResourceError UndoRefusedError UnknownModelError UnknownTypeError
        VisibilityExpansionRequired WrongResourceError""",
    "handrail.filesystem": """CommitRecordStore FileStart FileStat Filesystem FilesystemError HostFilesystem
        InMemoryFilesystem PathConflictError PathEscapeError PathFilter PathNotFoundError PathSet Scan
        SnapshotError WalkRequest excluding""",
    "handrail.prompt": """Approval ApprovalRequest Approver BinaryPart CompletionCheck
        CompletionChecker CompletionContext DeadlineFeedback Effect External Feedback FeedbackContext FeedbackProvider
        FeedbackTrigger FileShown FilesExist FunctionTool IdempotencyConfig MarkdownSection OverridesReport
        PolicyDecision PolicyQuestion Prompt PromptRenderError PromptTemplate PromptText PromptValidationError
        ReadBeforeWritePolicy RenderedPrompt Section SequentialDependencyPolicy StaticFeedback TextPart Tool ToolContext
        ToolExample ToolHandler ToolPolicy ToolResult ToolsSection Undo
        VisibilityExpansionRequired template_texts tool""",
    "handrail.replay": "Difference Recording Replay replay",
    "handrail.resources": """Binding CallScope CircularResourceError Copied DuplicateBindingError ProviderError Resolver
        Resource ResourceContext ResourceError ResourceRegistry ResourceUseError Scope Snapshotable UnboundResourceError
        WrongResourceError""",
    "handrail.runtime": """Budget BudgetTracker Deadline Dispatcher EffectApplied EffectAwaited EffectLedger
        EffectUnsettled Heartbeat IdempotencyConfig RunContext Session Step TokenUsage ToolCall ToolEffect ToolInvoked
        ToolMessage ToolRaised Transaction append_all reducer replace_latest upsert_by""",
    "handrail.serde": """Codec MASK Masking canonical_json codec digest dump type_masking parse result_codec
        result_masking schema schema_masking stored_codec""",
    "handrail.session": """Append CallRef Change DatabaseConnection OpenCall Reducer Replace Session SessionSnapshot
        SessionStore Slice SlicePolicy SliceView Unchanged append_all reducer replace_latest stored_as upsert_by""",
    "handrail.store": """ClaimOwner EffectRow EffectStatus LedgerStore MemoryStore MemoryStore
        SqliteStore Store WatchCallback open""",
    "handrail.store.postgres": "PostgresStore Server harmless_address",
    "handrail.taint": "Provenance Sanitized TaintPolicy Tainted taint_by_answer list_taints",
    "handrail.testing": """Call Crashed Expect FakeClock Completed Outcome Reply Script ScriptedModel
        assert_replays assert_undoes crash_at play play_async run_to_crash run_tool""",
    "handrail.transcript": """ApprovalWait ConversationId MessageBlock TranscriptBreak TranscriptCall TranscriptItem
        TranscriptMessage TranscriptReader""",
    "handrail.transaction": """CommitParticipant in_call RecordCommit Snapshotable Transaction TwoPhaseParticipant
        UnitOfWork UnitStore check_write current enlist is_rolling_back view_for_call""",
    "handrail.turns": "Ticket Turn draw_ticket find_turn own_turn",
    "handrail.undo": """DryRunPlan UndoPlan UndoReport UndoStep UndoneCalls apply apply_plan dry_run on_abort plan""",
    "handrail.worker": "Again AgentFunction Failed Finished ResumeOptions RunOutcome RunTask Waiting resume submit",
}
"""What each package exports: the documents, the README and programs import it from there."""

_LOOPS = ("handrail.adapters.anthropic", "handrail.adapters.openai")
SAME = {(name, *_LOOPS) for name in ("answer", "answer_async", "tools")}
"""What the adapter of each SDK has, with the same meaning: a program changes its provider by an import."""

import_module("handrail.store")  # a package has those of its modules that were imported


def test_names_of_stored_types_stay() -> None:
    """What stands in a store is found by its name."""
    named = [name for source in python_sources("src") for name in _stored_names(source)]
    assert sorted(named) == sorted(f"handrail.{name}" for name in STORED.split())


@pytest.mark.parametrize("face", FACES)
def test_packages_export_what_they_have_exported(face: str) -> None:
    """Who adds, renames or removes a public name does it here, too, and says so in the changelog."""
    source = next(source for source in python_sources("src") if source.module == face)
    assert _exported(source) == set(FACES[face].split())


def test_every_package_with_exports_is_listed() -> None:
    """A new package takes its place in the table."""
    assert {source.module for source in python_sources("src") if _exported(source)} == FACES.keys()


def test_no_public_name_has_two_meanings() -> None:
    """A class, function or value of one name is defined in one module; a reader who searches for it finds one thing."""
    places: dict[str, list[str]] = defaultdict(list)
    for source in python_sources("src"):
        for name in _public_definitions(source):
            places[name].append(source.module)
    doubled = {name: modules for name, modules in places.items() if len(modules) > 1 and (name, *modules) not in SAME}
    assert not doubled, listed([f"{name}: {', '.join(modules)}" for name, modules in doubled.items()])


def test_errors_are_made_with_the_attributes_that_they_declare() -> None:
    """The constructor of most takes any; a type checker does not see which."""
    faults = [
        f"{source.path}:{node.lineno}: {cls.__name__} is made with {given}, of {allowed}"
        for source in python_sources("src", "tests")
        for node in source.nodes
        if isinstance(node, ast.Call) and (cls := _error_class(node.func)) is not None
        for given in [{keyword.arg for keyword in node.keywords}]
        for allowed, required in [_attributes(cls)]
        if None not in given and not required <= given <= allowed
    ]
    assert not faults, listed(faults)


def _error_class(function: ast.expr) -> type[errors.HandrailError] | None:
    """The class of an error with any attributes that is called."""
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    cls: object = getattr(errors, name, None) if name in vars(errors)["__all__"] else None
    if not (isinstance(cls, type) and issubclass(cls, errors.HandrailError)):
        return None
    kinds = [parameter.kind for parameter in signature(cls).parameters.values()]
    return cls if Parameter.VAR_KEYWORD in kinds else None


def _attributes(cls: type[errors.HandrailError]) -> tuple[set[str], set[str]]:
    """The attributes that an error may be made with, and those that it must be."""
    parameters = [each for each in signature(cls).parameters.values() if each.kind is Parameter.KEYWORD_ONLY]
    declared = {name for base in cls.__mro__ for name in vars(base).get("__annotations__", {})} - {"text_for_model"}
    required = {each.name for each in parameters if each.default is Parameter.empty}
    return declared | {each.name for each in parameters}, required | {n for n in declared if not hasattr(cls, n)}


def _stored_names(source: Source) -> Iterator[str]:
    for node in source.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "stored_as":
            name = node.args[0]
            assert isinstance(name, ast.Constant), f"{source.path}:{node.lineno}"
            yield str(name.value)


def _exported(source: Source) -> set[str]:
    if source.path.name != "__init__.py" or "__all__ = [" not in source.text:
        return set()
    return set(vars(import_module(source.module))["__all__"])


def _public_definitions(source: Source) -> set[str]:
    found: set[str] = set()
    for node in source.tree.body:
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                found.add(node.name)
            case ast.Assign() | ast.AnnAssign() if not _is_type_variable(node.value):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
            case _:
                pass
    return {name for name in found if not name.startswith("_")}


def _is_type_variable(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in {"TypeVar", "ParamSpec", "TypeVarTuple"}


PARTICIPLES = """
    added answered asked asking begun being built called caught chosen claimed coming copied counted declared dumped
    each ended escaped found given going gone got granted grouped handed held joined kept known listed loaded lost
    lying made marked measured meant moved opened ordered owned parsed passed quoted raised recorded refused removed
    rendered resolved restored returned said saved seen selected sent settled shown sorted standing started stopped
    stored taken told tried used wanted wrapped written
"""
"""Words that say what was done to a value, and not what it is."""

STORED_OR_PUBLIC = "added asked ended given held opened refused removed shown stopped wrapped written"
"""Fields of stored types and public ones, and the word of a base class of PydanticAI."""


def test_a_name_says_what_a_thing_is() -> None:
    """No participle, and no function whose name ends in `_of`: they are looked for by what they name."""
    participles = {*PARTICIPLES.split()} - {*STORED_OR_PUBLIC.split()}
    faults = [
        f"{source.path.name}:{line}: {name}"
        for source in python_sources("src")
        for name, line in _given_names(source)
        if name.strip("_") in participles or name.endswith("_of")
    ]
    assert not faults, listed(faults)


def _given_names(source: Source) -> Iterator[tuple[str, int]]:
    for node in source.nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case _:
                pass

"""Every exception that Handrail raises, in one tree; each name exists once.

::

    HandrailError
    ├── PromptValidationError ToolSignatureError PromptRenderError SchemaError      developer: a declaration
    ├── ParseError DumpError                   caller of serde: the data, or the value, does not fit
    ├── DispatchError LedgerError ScriptError  developer; ScriptError is also an AssertionError of a test
    ├── SessionError                developer: SessionBusyError SnapshotError SessionNotFoundError SessionLockedError
    │                               SessionLostError UnknownTypeError; and mistakes: ReducerError SessionUseError
    ├── StoreError                  developer: StoreUnavailableError (may be tried again) StoreCorruptError
    │                               StoreReadOnlyError StoreVersionError; and a mistake: StoreClosedError
    ├── ResourceError               developer: DuplicateBindingError ProviderError; and mistakes: ResourceUseError
    │                               UnboundResourceError CircularResourceError WrongResourceError
    ├── FilesystemError             handler or model: PathNotFoundError PathConflictError PathEscapeError; developer:
    │                               RootMissingError JournalError FilesystemBusyError
    ├── PosixRequiredError SandboxError        developer: the machine lacks something
    ├── DocumentError               developer: a document, with file, line and column: OverridesError
    ├── AgentError                  developer: AgentFileError ApprovalRulesError ProjectError DiscoveryError
    │                               RegistryError ResolutionError UnknownModelError FactoryError ToolConflictError
    ├── DeveloperMistake            developer, once the other calls of the reply have ended: CallIdReusedError
    │                               CompletionCheckError InvalidArgumentError InvalidReturnError LoopBlockedError
    │                               SecondStoreError, and the mistakes above
    ├── CallPostponed               adapters: a call that waits for an approval; it is made again later
    ├── ModelVisibleError           the model, as a failed result: ToolValidationError ReadOnlyViolation
    │                               TransactionClosedError TurnConflictError AgentDepthError LeaseLostError
    │                               AppliedMeanwhileError EffectNotApplied EffectUncertain
    └── RunAbortedError             caller of the run: PromptEvaluationError (ModelUnreachableError RecordingError
                                    RollbackError) CommitInDoubtError DeadlineExceededError BudgetExceededError
                                    VisibilityExpansionRequired

An error for the developer is raised where a thing is declared; in the body of a handler, it fails the call as any other
exception does. A `DeveloperMistake` reaches the developer from inside a call, too: see `handrail.runtime.failures`.
"""

from __future__ import annotations

from handrail.errors.developer import (
    AgentError,
    AgentFileError,
    ApprovalRulesError,
    CallIdReusedError,
    CircularResourceError,
    CompletionCheckError,
    DiscoveryError,
    DispatchError,
    DocumentError,
    DumpError,
    DuplicateBindingError,
    FactoryError,
    InvalidArgumentError,
    InvalidReturnError,
    LoopBlockedError,
    OverridesError,
    ParseError,
    PosixRequiredError,
    ProjectError,
    PromptRenderError,
    PromptValidationError,
    ProviderError,
    RegistryError,
    ResolutionError,
    ResourceError,
    ResourceUseError,
    SandboxError,
    SchemaError,
    ScriptError,
    SecondStoreError,
    SignatureFault,
    ToolConflictError,
    ToolSignatureError,
    UnboundResourceError,
    UnknownModelError,
    WrongResourceError,
)
from handrail.errors.outcomes import (
    AgentDepthError,
    AppliedMeanwhileError,
    BudgetExceededError,
    CallPostponed,
    CommitInDoubtError,
    DeadlineExceededError,
    DeveloperMistake,
    EffectNotApplied,
    EffectUncertain,
    HandrailError,
    LeaseLostError,
    ModelUnreachableError,
    ModelVisibleError,
    PromptEvaluationError,
    ReadOnlyViolation,
    RecordingError,
    RollbackError,
    RunAbortedError,
    ToolValidationError,
    TransactionClosedError,
    TurnConflictError,
    VisibilityExpansionRequired,
)
from handrail.errors.storage import (
    FilesystemBusyError,
    FilesystemError,
    JournalError,
    LedgerError,
    PathConflictError,
    PathEscapeError,
    PathNotFoundError,
    ReducerError,
    RootMissingError,
    SessionBusyError,
    SessionError,
    SessionLockedError,
    SessionLostError,
    SessionNotFoundError,
    SessionUseError,
    SnapshotError,
    StoreClosedError,
    StoreCorruptError,
    StoreError,
    StoreReadOnlyError,
    StoreUnavailableError,
    StoreVersionError,
    UnknownTypeError,
)

__all__ = [
    "AgentDepthError",
    "AgentError",
    "AgentFileError",
    "AppliedMeanwhileError",
    "ApprovalRulesError",
    "BudgetExceededError",
    "CallIdReusedError",
    "CallPostponed",
    "CircularResourceError",
    "CommitInDoubtError",
    "CompletionCheckError",
    "DeadlineExceededError",
    "DeveloperMistake",
    "DiscoveryError",
    "DispatchError",
    "DocumentError",
    "DumpError",
    "DuplicateBindingError",
    "EffectNotApplied",
    "EffectUncertain",
    "FactoryError",
    "FilesystemBusyError",
    "FilesystemError",
    "HandrailError",
    "InvalidArgumentError",
    "InvalidReturnError",
    "JournalError",
    "LeaseLostError",
    "LedgerError",
    "LoopBlockedError",
    "ModelUnreachableError",
    "ModelVisibleError",
    "OverridesError",
    "ParseError",
    "PathConflictError",
    "PathEscapeError",
    "PathNotFoundError",
    "PosixRequiredError",
    "ProjectError",
    "PromptEvaluationError",
    "PromptRenderError",
    "PromptValidationError",
    "ProviderError",
    "ReadOnlyViolation",
    "RecordingError",
    "ReducerError",
    "RegistryError",
    "ResolutionError",
    "ResourceError",
    "ResourceUseError",
    "RollbackError",
    "RootMissingError",
    "RunAbortedError",
    "SandboxError",
    "SchemaError",
    "ScriptError",
    "SecondStoreError",
    "SessionBusyError",
    "SessionError",
    "SessionLockedError",
    "SessionLostError",
    "SessionNotFoundError",
    "SessionUseError",
    "SignatureFault",
    "SnapshotError",
    "StoreClosedError",
    "StoreCorruptError",
    "StoreError",
    "StoreReadOnlyError",
    "StoreUnavailableError",
    "StoreVersionError",
    "ToolConflictError",
    "ToolSignatureError",
    "ToolValidationError",
    "TransactionClosedError",
    "TurnConflictError",
    "UnboundResourceError",
    "UnknownModelError",
    "UnknownTypeError",
    "VisibilityExpansionRequired",
    "WrongResourceError",
]

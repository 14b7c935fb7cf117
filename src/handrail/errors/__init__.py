"""Every exception that Handrail raises, in one tree.

::

    HandrailError
    ├── PromptValidationError        developer: a tool, section, policy or prompt is declared wrongly
    │   └── ToolSignatureError       developer: a function that cannot become a tool; has every fault of its signature
    ├── PromptRenderError            developer: a prompt was rendered without the values it needs
    ├── SchemaError                  developer: a type that Handrail cannot turn into a schema
    ├── ParseError                   caller of serde: the data does not fit the dataclass
    ├── DumpError                    caller of serde: a value that JSON cannot say, or that is not of its declared type
    ├── DispatchError                developer: subscribers failed while an event was dispatched
    ├── LedgerError                  developer: an entry of the ledger is in a state that does not allow what was asked
    ├── ScriptError                  test: a scripted model and the run disagree, or the script cannot be read
    ├── SessionError                 developer: a session was used against its rules
    │   ├── SessionBusyError         developer: a write from outside while a call holds the session
    │   ├── ReducerError             (also a DeveloperMistake) reducers clash, or one returned what no slice can become
    │   ├── SessionUseError          (also a DeveloperMistake) a session was asked for what it cannot do
    │   ├── SnapshotError            developer: a snapshot that does not belong here, or is out of date
    │   ├── SessionNotFoundError     developer: the store has no session of that id
    │   ├── SessionLockedError         developer: another process writes to the session
    │   ├── SessionLostError         developer: the session has passed to another process
    │   └── UnknownTypeError         developer: a store holds values of a type that the program does not know
    ├── StoreError                   developer: a store cannot do what it is asked
    │   ├── StoreUnavailableError    it does not answer, is busy for too long, or its disk is full
    │   ├── StoreClosedError         (also a DeveloperMistake) the program has closed it, and uses it again
    │   ├── StoreCorruptError        what it holds cannot be read
    │   ├── StoreReadOnlyError       it cannot be written to
    │   └── StoreVersionError        its tables have another version
    ├── ResourceError                developer: see `handrail.resources`
    │   ├── UnboundResourceError     (also a DeveloperMistake) nothing is bound for a type
    │   ├── CircularResourceError    (also a DeveloperMistake) providers need each other
    │   ├── ResourceUseError         (also a DeveloperMistake) a resource was asked for where it does not live
    │   ├── DuplicateBindingError    two bindings of one type in one registry
    │   └── ProviderError            a provider raised
    │       └── WrongResourceError   (also a DeveloperMistake) it made something of another type
    ├── FilesystemError              handler or model: a file operation that cannot be done
    │   ├── PathNotFoundError        no such file or folder
    │   ├── PathConflictError        a file where a folder is needed, or the other way round, or it exists already
    │   ├── PathEscapeError          a path that leaves the root, or is not a path
    │   ├── RootMissingError        the folder that a filesystem was opened on is gone
    │   ├── JournalError             the record of what to restore on disk cannot be used
    │   └── FilesystemBusyError      another process works on the same root
    ├── PosixRequiredError           developer: this needs a POSIX system; has `needed`
    ├── SandboxError                 developer: a sandbox cannot be started; has `engine` and `cure`
    ├── DocumentError                developer: a document that cannot be read; it names file, line and column
    │   └── OverridesError           (also a DeveloperMistake) a file of overrides that is none, or does not fit
    ├── AgentError                   developer: an agent, its project, or what it names cannot be used
    │   ├── AgentFileError           (also a DocumentError) an agent file that is none
    │   ├── ApprovalRulesError       (also a DocumentError) a file of approval rules that is none
    │   ├── ProjectError             a project folder or its `[tool.handrail]`; or several problems at once
    │   ├── DiscoveryError           a module whose tools or toolsets cannot be registered
    │   ├── RegistryError            two entries of one kind have one name
    │   ├── ResolutionError          an agent names tools or toolsets that do not exist
    │   ├── UnknownModelError        the name of a model that can be none
    │   ├── FactoryError             a toolset factory that cannot be called, or made something else
    │   └── ToolConflictError        tools of one agent have the same name
    ├── DeveloperMistake             raised to the developer once the other calls of the reply have ended
    │   ├── CallIdReusedError        the identity of a recorded call was used for another call
    │   ├── CompletionCheckError     the completion checker of a prompt failed
    │   ├── InvalidArgumentError     a function of Handrail was given a value of the wrong kind
    │   ├── InvalidReturnError       a policy, an approver, a key_fn or a reconcile returned another type
    │   ├── LoopBlockedError         an operation would have blocked an event loop: the loop guard is on
    │   └── SecondStoreError         a call writes to two stores
    ├── CallPostponed                adapters: a call that waits for an approval; undone, not recorded, made again later
    ├── ModelVisibleError            becomes a failed result: the model reads the message and may try again
    │   ├── ToolValidationError      a handler or policy found the arguments wanting
    │   ├── ReadOnlyViolation        a handler that may only read tried to write
    │   ├── TransactionClosedError   a write that came after its call had ended
    │   ├── TurnConflictError        a nested call that would have waited for its own caller
    │   ├── AgentDepthError          agents call each other too deep
    │   ├── LeaseLostError           the claim of an effect passed to another owner
    │   ├── AppliedMeanwhileError    another call applied the result of an effect at the same time
    │   ├── EffectNotApplied         a handler knows that its effect did not happen
    │   └── EffectUncertain          a handler does not know whether its effect happened
    └── RunAbortedError                      ends the run: no model can correct it
        ├── PromptEvaluationError    the evaluation of a prompt stopped; `phase` says where
        │   ├── ModelUnreachableError  the provider of a model did not answer
        │   ├── RecordingError       the session was lost, or a store does not answer: open the session again
        │   └── RollbackError        a participant could not be restored, so its state is not to be trusted
        ├── CommitInDoubtError       a store was lost in the moment of a commit
        ├── DeadlineExceededError    the time is up (the pipeline turns it into `PromptEvaluationError`)
        ├── BudgetExceededError      the tokens are used up
        └── VisibilityExpansionRequired  the prompt must be rendered again with sections opened

The two audiences are the two last branches: what *the model reads* and what *ends the run*. Everything above them
is for the developer. Most of it is raised where a thing is declared; raised in the body of a handler, it fails the call
as any other exception does. A `DeveloperMistake` reaches the developer from inside a call, too: see
`handrail.runtime.failures`. A name exists once; the packages re-export what belongs to them.
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

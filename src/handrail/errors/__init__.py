"""Every exception that Handrail raises, in one tree; each name exists once.

::

    HandrailError
    ├── PromptValidationError ToolSignatureError PromptRenderError SchemaError      developer: a declaration
    ├── ParseError DumpError                   caller of serde: the data, or the value, does not fit
    ├── DispatchError LedgerError ScriptError  developer; ScriptError is also an AssertionError of a test
    ├── SessionError                developer: SessionBusyError SnapshotError SessionNotFoundError SessionLockedError
    │                               SessionLostError UndoRefusedError UnknownTypeError; and mistakes: ReducerError
    │                               SessionUseError
    ├── StoreError                  developer: StoreUnavailableError (may be tried again) StoreCorruptError
    │                               StoreReadOnlyError StoreVersionError; and a mistake: StoreClosedError
    ├── ResourceError               developer: DuplicateBindingError ProviderError; and mistakes: ResourceUseError
    │                               UnboundResourceError CircularResourceError WrongResourceError
    ├── FilesystemError             handler or model: PathNotFoundError PathConflictError PathEscapeError; developer:
    │                               RootMissingError JournalError FilesystemBusyError
    ├── SandboxError                developer: the machine lacks something
    ├── DocumentError               developer: a document, with file, line and column: OverridesError
    ├── AgentError                  developer: AgentFileError ApprovalRulesError ProjectError DiscoveryError
    │                               RegistryError ResolutionError UnknownModelError FactoryError ToolConflictError
    ├── DeveloperMistake            developer, once the other calls of the reply have ended: CallIdReusedError
    │                               CompletionCheckError DurableEngineError InvalidArgumentError InvalidReturnError
    │                               LoopBlockedError SecondStoreError, and the mistakes above
    ├── CallPostponed               adapters: a call that waits for an approval; it is made again later
    ├── ModelVisibleError           the model, as a failed result: ToolValidationError ReadOnlyViolation
    │                               TransactionClosedError TurnConflictError AgentDepthError LeaseLostError
    │                               AppliedMeanwhileError EffectNotApplied EffectUncertain
    └── RunAbortedError             caller of the run: PromptEvaluationError (IncompleteReplyError RecordingError
                                    ModelUnreachableError RollbackError) CommitInDoubtError DeadlineExceededError
                                    BudgetExceededError VisibilityExpansionRequired DryRunEndedError PlanRefusedError
                                    PlanDeviatedError ReplayEndedError

An error for the developer is raised where a thing is declared; in the body of a handler, it fails the call as any other
exception does. A `DeveloperMistake` reaches the developer from inside a call, too: see `handrail.runtime.failures`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from handrail.errors.developer import *  # noqa: F403 - all classes of the three modules are public
from handrail.errors.outcomes import *  # noqa: F403
from handrail.errors.storage import *  # noqa: F403

if not TYPE_CHECKING:  # type checkers read the imports
    __all__ = [
        name for name, kind in globals().items() if isinstance(kind, type) and kind.__module__.startswith(__name__)
    ]

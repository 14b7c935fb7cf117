"""The ledger of external effects: claim, run, complete.

- `effects`: the ledger's requests and answers as values, and the state machine of an effect row, as pure functions.
- `ledger`: `EffectLedger`: claim, complete, resolve, prune.
- `claim`: one owner's claim through commit, rollback and doubt.
- `replays`: the claims of calls that are answered with an effect, and who has an effect in this process.
- `records`: what the ledger records of the arguments and the result of a call.
- `lease_renewal`: leases renewed and waiters notified while time passes.
"""

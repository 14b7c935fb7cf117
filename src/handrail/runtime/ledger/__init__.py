"""The ledger of external effects: claim, run, complete.

- `effects`: the ledger's requests and answers as values.
- `states`: the state machine of an effect row, as pure functions.
- `ledger`: `EffectLedger`: claim, complete, resolve, prune.
- `claim`: one owner's claim through commit, rollback and doubt.
- `recorded_arguments`: what the ledger records of the arguments of a call.
- `lease_renewal`: leases renewed and waiters notified while time passes.
"""

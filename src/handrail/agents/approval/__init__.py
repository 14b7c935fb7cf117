"""Who may say that a call runs: rules, one gate for each run, and the people it asks."""

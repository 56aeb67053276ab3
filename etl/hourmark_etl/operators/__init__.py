"""The commands for operators: `bucket`, `audit`, `ledger`, `dead-letters`, `canary` and `trace`."""

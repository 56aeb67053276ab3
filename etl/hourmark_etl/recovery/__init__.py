"""The ledger beside storage and topics: refuse an older copy, check it, recreate a lost one."""

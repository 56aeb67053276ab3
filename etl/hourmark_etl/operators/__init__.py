"""What operators ask and order: the commands `bucket`, `audit`, `ledger`, `dead-letters` and
`trace`, and what they tell.
"""

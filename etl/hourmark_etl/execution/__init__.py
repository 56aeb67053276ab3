"""How Spark runs the ETL's tasks: session, reuse of workers, failures as values."""

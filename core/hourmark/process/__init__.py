"""Building blocks of long-running processes: durable files, signals, certificates, alarms, metrics."""

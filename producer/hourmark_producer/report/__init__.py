"""What the tailer reports to operators: status, traces of lines, metrics, health."""

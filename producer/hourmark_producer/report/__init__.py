"""What the tailer reports to operators: status, traces of single lines, metrics and health."""

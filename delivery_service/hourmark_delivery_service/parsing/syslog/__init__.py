"""Headers of syslog lines, in every form that a parser version knows."""

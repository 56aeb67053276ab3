"""From unread bytes to an acknowledged range."""

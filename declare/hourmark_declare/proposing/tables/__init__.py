"""Tables: columns between delimiters or spaces, with their names."""

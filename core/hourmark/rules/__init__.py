"""Event types and rules revisions: everything that parsing depends on."""

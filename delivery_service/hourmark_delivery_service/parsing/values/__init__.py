"""Values: from text or JSON to Avro binary."""

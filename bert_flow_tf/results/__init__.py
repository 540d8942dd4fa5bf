"""Results: schema, reader, rows and tables."""

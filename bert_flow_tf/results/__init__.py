"""Records of results: the schema, the reader, and the rows and tables that compare them."""

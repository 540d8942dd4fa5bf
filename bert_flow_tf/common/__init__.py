"""Files, errors, settings, records and tables, which every room uses."""

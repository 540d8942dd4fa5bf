"""The page of a report, and the tables that commands print."""

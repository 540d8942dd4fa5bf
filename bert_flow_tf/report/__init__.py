"""Tables, pictures and pages of results, beside the paper's."""

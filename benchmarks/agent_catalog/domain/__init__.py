"""The domain of the evaluation: tables, what their owners know, what happens later, questions."""

"""A project of the built wheel, in an empty folder outside the checkout, as its user has it."""

"""A language model behind an OpenAI-compatible endpoint in the reader's place."""

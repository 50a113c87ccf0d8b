"""Views: their metadata, its JSON, its changes and requirements (spec: View Spec)."""

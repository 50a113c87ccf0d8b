"""Clients of the Model Context Protocol that others wrote, against `lakehouse mcp`."""

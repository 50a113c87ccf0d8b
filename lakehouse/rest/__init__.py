"""Asking a server of Iceberg's REST protocol: requests, logins, what the server says of itself."""

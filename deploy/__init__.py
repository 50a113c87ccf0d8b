"""What the containers of docker-compose.yml run beside Dagster itself."""

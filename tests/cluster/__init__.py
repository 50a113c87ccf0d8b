"""docker-compose.yml as processes of this machine: run for real, killed, and watched."""

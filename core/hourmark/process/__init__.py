"""What every long-running process needs: durable files, a state folder, signals, logging."""

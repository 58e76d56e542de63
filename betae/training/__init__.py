"""Training: config, data, losses, optimizer, checkpoints and the loop."""

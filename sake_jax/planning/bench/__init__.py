"""What guidance costs, by the clock of this machine and by plans for others."""

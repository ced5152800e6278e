"""What an agent's hooks call: `onrecord hook VENDOR EVENT`, once per moment of the agent's life, in a fresh process."""

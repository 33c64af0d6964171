"""How a policy meets environments, in this process or in others."""

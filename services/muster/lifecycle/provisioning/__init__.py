"""ProvisioningRequests for gangs that wait for nodes: all of their nodes, or none (an option of each gang)."""

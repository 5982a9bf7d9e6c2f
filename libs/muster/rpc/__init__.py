"""gRPC between the services: one way to serve, to call, to subscribe, and to carry facts."""

"""gRPC between the services: server, channel, subscription, and the codecs of Watch and Solve."""

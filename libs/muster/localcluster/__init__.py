"""A whole cluster on one machine, for trying Muster out and for tests. Production code never imports it."""

import os

# What gRPC does around fork() ends one in thirty processes that are started while calls are under way by SIGSEGV,
# before they are the program they are to be (measured with uvloop). Nobody here goes on in Python after a fork.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

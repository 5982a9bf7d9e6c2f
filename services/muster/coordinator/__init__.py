"""coordinator: decides when gangs start, and sees to it that they do. Main path: service, term, core/machine."""

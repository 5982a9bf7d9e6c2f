"""CEL expressions that select devices (resource.k8s.io): parser, evaluator with a cost limit, Kubernetes' libraries.

`muster.cel.selection` evaluates expressions for devices as facts; `muster.cel.selector` compiles one expression,
`muster.cel.device` has the form of devices in it, and `muster.cel.results` keeps results.
"""

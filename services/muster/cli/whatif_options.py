"""Options of `muster whatif`, `muster queue` and `muster explain`, and of the same commands of `kubectl muster`."""

from pathlib import Path
from typing import Annotated

import typer

WhatIfFile = Annotated[
    list[Path],
    typer.Option("--filename", "-f", metavar="FILE", help="Manifests, as for kubectl apply; - for standard input."),
]
WhatIfCount = Annotated[
    int | None,
    typer.Option("--count", min=1, help="Pods of each template, instead of those in the manifest.", show_default=False),
]
WhatIfTopology = Annotated[
    str, typer.Option("--topology", help="Constraints, as in muster.dev/topology.", show_default=False)
]
WhatIfPriorityClass = Annotated[
    str, typer.Option("--priority-class", help="PriorityClass of the pods.", show_default=False)
]
WhatIfWithout = Annotated[
    list[str] | None,
    typer.Option("--without", metavar="GANG", help="As if this gang were deleted before; may be repeated."),
]
WhatIfWithoutNode = Annotated[
    list[str] | None,
    typer.Option("--without-node", metavar="NODE", help="As if this node were removed before; may be repeated."),
]
WhatIfAddNodes = Annotated[int, typer.Option("--add-nodes", min=0, help="As if so many nodes were added before.")]
WhatIfLike = Annotated[
    str, typer.Option("--like", metavar="NODE", help="What the new nodes are like.", show_default=False)
]
WhatIfLimit = Annotated[
    float,
    typer.Option("--limit", min=1, help="Time limit of the answer, in seconds, and of changes that help."),
]
StartsLimit = Annotated[
    float, typer.Option("--limit", min=1, help="Time limit of finding expected starts, in seconds.")
]
PlayLimit = Annotated[
    float,
    typer.Option(
        "--limit",
        min=0,
        help="Time limit, in seconds, of playing changes with which a gang that waits would start; 0: none are played.",
    ),
]

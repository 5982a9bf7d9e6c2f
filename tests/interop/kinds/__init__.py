"""The table of workloads: one module per controller."""

from typing import Final

from interop.kinds.jobset import JOBSET
from interop.kinds.kuberay import KUBERAY
from interop.kinds.kubernetes import KUBERNETES
from interop.kinds.kueue import KUEUE
from interop.kinds.lws import LWS
from interop.kinds.mpi_operator import MPI_OPERATOR
from interop.kinds.spark_operator import SPARK_OPERATOR
from interop.kinds.trainer import TRAINER
from interop.kinds.volcano import VOLCANO
from interop.workload_kind import WorkloadKind

KINDS: Final[tuple[WorkloadKind, ...]] = (
    *KUBERNETES,
    *JOBSET,
    *LWS,
    *KUEUE,
    *TRAINER,
    *MPI_OPERATOR,
    *KUBERAY,
    *SPARK_OPERATOR,
    *VOLCANO,
)

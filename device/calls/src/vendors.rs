//! Replacements for vendors' calls.

pub(crate) const SRD: &str =
    "use queue pairs of RC or UD instead of SRD (libfabric: FI_PROVIDER=verbs, or \"verbs;ofi_rxm\")";
pub(crate) const QUEUE_PAIRS: &str =
    "use ibv_create_qp_ex, and RC or UD instead of DC (UCX: UCX_TLS=rc_v,ud_v)";
pub(crate) const COMPLETION_QUEUES: &str = "use ibv_create_cq_ex";
pub(crate) const WORK_QUEUES: &str = "use a queue pair with a shared receive queue";
pub(crate) const DMA_BUFS: &str = "use ibv_reg_dmabuf_mr";
pub(crate) const DEVICE_MEMORY: &str = "use ibv_alloc_dm";
pub(crate) const DEVX: &str = "use the calls of libibverbs (UCX: UCX_IB_MLX5_DEVX=n)";
pub(crate) const FLOWS: &str = "no packet of Ethernet passes here that could be steered";
pub(crate) const LIBIBVERBS: &str = "use the calls of libibverbs, which every device has";
pub(crate) const EFA: &str = "start the program with `pumice run --device efa`, whose device answers it";
pub(crate) const DC: &str = "start the program with `pumice run --device connectx-7`, or use RC or UD \
     instead of DC (UCX: UCX_TLS=rc_v,ud_v)";
pub(crate) const CONNECTX: &str =
    "start the program with `pumice run --device connectx-7`, whose device answers it";

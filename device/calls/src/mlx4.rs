//! The calls of mlx4 (`<infiniband/mlx4dv.h>`), which are refused.

use crate::row::CallFamily;

pub(crate) const FAMILY: CallFamily = CallFamily::Vendor("mlx4 (ConnectX-3)");
pub(crate) const V1_0: &str = "MLX4_1.0";
pub(crate) use crate::vendors::*;

macro_rules! rows {
    ($then:ident $left:tt $($rows:tt)*) => { $then! { $left $($rows)* mlx4 {
        mlx4dv_create_qp: null(V1_0).replacement(QUEUE_PAIRS),
        mlx4dv_init_obj: errno(V1_0).replacement(LIBIBVERBS),
        mlx4dv_query_device: errno(V1_0).replacement(LIBIBVERBS).probe(),
        mlx4dv_set_context_attr: errno(V1_0).replacement(LIBIBVERBS),
    } } };
}
pub(crate) use rows;

//! The calls of MANA (`<infiniband/manadv.h>`), which are refused.

use crate::row::CallFamily;

pub(crate) const FAMILY: CallFamily = CallFamily::Vendor("MANA");
pub(crate) const V1_0: &str = "MANA_1.0";
pub(crate) use crate::vendors::*;

macro_rules! rows {
    ($then:ident $left:tt $($rows:tt)*) => { $then! { $left $($rows)* mana {
        manadv_init_obj: errno(V1_0).replacement(LIBIBVERBS),
        manadv_set_context_attr: errno(V1_0).replacement(LIBIBVERBS),
    } } };
}
pub(crate) use rows;

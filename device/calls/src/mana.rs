//! The calls of MANA (`<infiniband/manadv.h>`), which are refused.

use crate::row::Family;

pub(crate) const FAMILY: Family = Family::Vendor("MANA");
pub(crate) const V1_0: &str = "MANA_1.0";
pub(crate) use crate::vendors::*;

macro_rules! rows {
    ($then:ident $left:tt $($rows:tt)*) => { $then! { $left $($rows)* mana {
        manadv_init_obj: errno(V1_0).instead(LIBIBVERBS),
        manadv_set_context_attr: errno(V1_0).instead(LIBIBVERBS),
    } } };
}
pub(crate) use rows;

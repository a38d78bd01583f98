//! The calls of EFA (`<infiniband/efadv.h>`), which answer on a device that looks like EFA.

use crate::row::CallFamily;

pub(crate) const FAMILY: CallFamily = CallFamily::Vendor("EFA");
pub(crate) const V1_0: &str = "EFA_1.0";
pub(crate) const V1_1: &str = "EFA_1.1";
pub(crate) const V1_2: &str = "EFA_1.2";
pub(crate) const V1_3: &str = "EFA_1.3";
pub(crate) const V1_4: &str = "EFA_1.4";
pub(crate) const V1_5: &str = "EFA_1.5";
pub(crate) const V1_6: &str = "EFA_1.6";
pub(crate) const V1_7: &str = "EFA_1.7";
pub(crate) use crate::vendors::*;

macro_rules! rows {
    ($then:ident $left:tt $($rows:tt)*) => { $then! { $left $($rows)* efa {
        efadv_create_driver_qp: null(V1_0).creates(QueuePair, Domain).for_vendor_device(SRD),
        efadv_create_qp_ex: null(V1_1).creates(QueuePair, Context).for_vendor_device(SRD),
        efadv_query_ah: errno(V1_1).queries(AddressHandle).for_vendor_device(EFA).probe(),
        efadv_query_device: errno(V1_1).queries(Context).for_vendor_device(EFA).probe(),
        efadv_cq_from_ibv_cq_ex: null(V1_2).queries(CompletionQueue).for_vendor_device(EFA),
        efadv_create_cq: null(V1_2).creates(CompletionQueue, Context).for_vendor_device(COMPLETION_QUEUES),
        efadv_query_mr: errno(V1_3).queries(Region).for_vendor_device(EFA).probe(),
        efadv_query_cq: errno(V1_4).replacement(LIBIBVERBS).probe(),
        efadv_query_qp_wqs: errno(V1_4).replacement(LIBIBVERBS).probe(),
        efadv_get_max_rq_depth: negative(V1_5).queries(Context).for_vendor_device(EFA).probe(),
        efadv_get_max_sq_depth: negative(V1_5).queries(Context).for_vendor_device(EFA).probe(),
        efadv_qp_from_ibv_qp_ex: null(V1_6).queries(QueuePair).for_vendor_device(EFA),
        efadv_create_comp_cntr: null(V1_7).replacement(LIBIBVERBS),
    } } };
}
pub(crate) use rows;

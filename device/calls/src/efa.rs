//! The calls of EFA (`<infiniband/efadv.h>`), which answer on a device that looks like EFA.

use crate::row::Family;

pub(crate) const FAMILY: Family = Family::Vendor("EFA");
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
        efadv_create_driver_qp: null(V1_0).makes(QueuePair, Domain).on_face(SRD),
        efadv_create_qp_ex: null(V1_1).makes(QueuePair, Context).on_face(SRD),
        efadv_query_ah: errno(V1_1).asks(AddressHandle).on_face(EFA).question(),
        efadv_query_device: errno(V1_1).asks(Context).on_face(EFA).question(),
        efadv_cq_from_ibv_cq_ex: null(V1_2).asks(CompletionQueue).on_face(EFA),
        efadv_create_cq: null(V1_2).makes(CompletionQueue, Context).on_face(COMPLETION_QUEUES),
        efadv_query_mr: errno(V1_3).asks(Region).on_face(EFA).question(),
        efadv_query_cq: errno(V1_4).instead(LIBIBVERBS).question(),
        efadv_query_qp_wqs: errno(V1_4).instead(LIBIBVERBS).question(),
        efadv_get_max_rq_depth: negative(V1_5).asks(Context).on_face(EFA).question(),
        efadv_get_max_sq_depth: negative(V1_5).asks(Context).on_face(EFA).question(),
        efadv_qp_from_ibv_qp_ex: null(V1_6).asks(QueuePair).on_face(EFA),
        efadv_create_comp_cntr: null(V1_7).instead(LIBIBVERBS),
    } } };
}
pub(crate) use rows;

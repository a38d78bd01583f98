//! Posting receives. Hot: nothing is allocated, and a program's scatter list is used where it lies.

use std::ffi::c_int;

use pumice_calls::Call;
use pumice_transport::types::RecvRequest;

use crate::ground::abi::{ibv_qp, ibv_recv_wr, ibv_srq, ibv_wq};
use crate::ground::arguments::{Out, Trusted};
use crate::ground::errno::Errno;
use crate::ground::gate::About;
use crate::ground::outcome::data_path::status_or;
use crate::ground::requests::Requests;
use crate::objects::queue_pair::Qp;
use crate::objects::shared_receive_queue::Srq;
use crate::objects::work_queue::Wq;

/// The first request of a list was refused.
#[inline]
fn refuse<'a>(list: Requests<'a, ibv_recv_wr>, bad_wr: Out<'_, Requests<'a, ibv_recv_wr>>) {
    if let Some(bad_wr) = bad_wr.optional() {
        bad_wr.set(list);
    }
}

/// Posts a list of requests; `bad_wr` gets the first that was refused.
#[inline]
fn post_list<'a>(
    mut list: Requests<'a, ibv_recv_wr>,
    bad_wr: Out<'_, Requests<'a, ibv_recv_wr>>,
    post: impl Fn(&RecvRequest<'_>) -> Result<(), Errno>,
) -> Result<(), Errno> {
    while let Some((request, rest)) = list.split_first() {
        let wr_id = request.get().wr_id;
        let posted = request.elements().and_then(|sges| post(&RecvRequest { wr_id, sges }));
        //= man:ibv_post_recv
        //| The call stops at the first request that is refused, and returns it.
        if let Err(errno) = posted {
            refuse(list, bad_wr);
            return Err(errno);
        }
        list = rest;
    }
    Ok(())
}

pub(crate) extern "C" fn post_recv<'a>(
    qp: Trusted<'_, ibv_qp>,
    list: Requests<'a, ibv_recv_wr>,
    bad_wr: Out<'_, Requests<'a, ibv_recv_wr>>,
) -> c_int {
    status_or(
        Call::ibv_post_recv,
        Qp::about(qp.as_ptr()),
        || refuse(list, bad_wr),
        || {
            let qp = qp.held::<Qp>().inspect_err(|_| refuse(list, bad_wr))?;
            post_list(list, bad_wr, |request| Ok(qp.hca().post_recv(qp.number(), request)?))
        },
    )
}

pub(crate) extern "C" fn post_srq_recv<'a>(
    srq: Trusted<'_, ibv_srq>,
    list: Requests<'a, ibv_recv_wr>,
    bad_wr: Out<'_, Requests<'a, ibv_recv_wr>>,
) -> c_int {
    status_or(
        Call::ibv_post_srq_recv,
        About::of(srq.as_ptr()),
        || refuse(list, bad_wr),
        || {
            let srq = srq.held::<Srq>().inspect_err(|_| refuse(list, bad_wr))?;
            post_list(list, bad_wr, |request| Ok(srq.hca().post_srq_recv(srq.handle(), request)?))
        },
    )
}

pub(crate) extern "C" fn post_wq_recv<'a>(
    wq: Trusted<'_, ibv_wq>,
    list: Requests<'a, ibv_recv_wr>,
    bad_wr: Out<'_, Requests<'a, ibv_recv_wr>>,
) -> c_int {
    status_or(
        Call::ibv_post_wq_recv,
        About::of(wq.as_ptr()),
        || refuse(list, bad_wr),
        || {
            let wq = wq.held::<Wq>()?;
            post_list(list, bad_wr, |request| Ok(wq.hca().post_recv(wq.number(), request)?))
        },
    )
}

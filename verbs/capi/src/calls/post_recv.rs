//! Posting of receive requests. This is a hot path: it allocates no memory, and uses a program's scatter list
//! in place.

use std::ffi::c_int;

use pumice_calls::Call;
use pumice_transport::types::RecvRequest;

use crate::abi::{ibv_qp, ibv_recv_wr, ibv_srq, ibv_wq};
use crate::entry::arguments::{Out, Trusted};
use crate::entry::outcome::data_path::status_or;
use crate::entry::requests::RequestList;
use crate::gate::CallSubject;
use crate::objects::queue_pair::Qp;
use crate::objects::shared_receive_queue::Srq;
use crate::objects::work_queue::Wq;
use crate::platform::errno::Errno;

/// The error of a full queue.
const FULL: Errno = Errno(libc::ENOMEM);

/// Reports that the first request of a list was refused.
#[inline]
pub(super) fn refuse<'a, W>(list: RequestList<'a, W>, bad_wr: Out<'_, RequestList<'a, W>>) {
    if let Some(bad_wr) = bad_wr.optional() {
        bad_wr.set(list);
    }
}

/// Posts a list of requests; `bad_wr` gets the first one that was refused.
#[inline]
fn post_list<'a>(
    mut list: RequestList<'a, ibv_recv_wr>,
    bad_wr: Out<'_, RequestList<'a, ibv_recv_wr>>,
    post: impl Fn(&RecvRequest<'_>) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let (full_list, mut count) = (list, 0);
    while let Some((request, rest)) = list.split_first() {
        let wr_id = request.get().wr_id;
        let posted = full_list
            .check_end(list, count)
            .and_then(|()| request.elements())
            .and_then(|sges| post(&RecvRequest { wr_id, sges }));
        //= man:ibv_post_recv
        //| The call stops at the first request that is refused, and returns it.
        if let Err(errno) = posted {
            let position = full_list.position_of(list, count);
            match request.malformed_reason() {
                Some(reason) => position.log_malformed(&reason),
                None if errno == FULL => position.log_if_ring(),
                None => {}
            }
            refuse(list, bad_wr);
            return Err(errno);
        }
        (list, count) = (rest, count + 1);
    }
    Ok(())
}

pub(crate) extern "C" fn post_recv<'a>(
    qp: Trusted<'_, ibv_qp>,
    list: RequestList<'a, ibv_recv_wr>,
    bad_wr: Out<'_, RequestList<'a, ibv_recv_wr>>,
) -> c_int {
    post_for(Call::ibv_post_recv, qp, list, bad_wr)
}

/// Posts a list for a call, as [`post_recv`] does.
#[inline(always)]
pub(super) fn post_for<'a>(
    call: Call,
    qp: Trusted<'_, ibv_qp>,
    list: RequestList<'a, ibv_recv_wr>,
    bad_wr: Out<'_, RequestList<'a, ibv_recv_wr>>,
) -> c_int {
    status_or(
        call,
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
    list: RequestList<'a, ibv_recv_wr>,
    bad_wr: Out<'_, RequestList<'a, ibv_recv_wr>>,
) -> c_int {
    status_or(
        Call::ibv_post_srq_recv,
        CallSubject::of(srq.as_ptr()),
        || refuse(list, bad_wr),
        || {
            let srq = srq.held::<Srq>().inspect_err(|_| refuse(list, bad_wr))?;
            post_list(list, bad_wr, |request| Ok(srq.hca().post_srq_recv(srq.handle(), request)?))
        },
    )
}

pub(crate) extern "C" fn post_wq_recv<'a>(
    wq: Trusted<'_, ibv_wq>,
    list: RequestList<'a, ibv_recv_wr>,
    bad_wr: Out<'_, RequestList<'a, ibv_recv_wr>>,
) -> c_int {
    status_or(
        Call::ibv_post_wq_recv,
        CallSubject::of(wq.as_ptr()),
        || refuse(list, bad_wr),
        || {
            let wq = wq.held::<Wq>()?;
            post_list(list, bad_wr, |request| Ok(wq.hca().post_recv(wq.number(), request)?))
        },
    )
}

//! Operations on the lists of tags of shared receive queues.

use std::ffi::c_int;

use pumice_calls::Call;
use pumice_device::objects::tag_list::{TagBuffer, TagChange, TagOperation};

use super::post_recv::refuse;
use crate::abi::{ibv_ops_wr, ibv_srq};
use crate::entry::arguments::Out;
use crate::entry::handles::live;
use crate::entry::outcome::status_of;
use crate::entry::requests::{ListedRequest, RequestList};
use crate::gate::CallSubject;
use crate::objects::shared_receive_queue::Srq;
use crate::platform::errno::{Errno, INVALID};

/// Values of `IBV_WR_TAG_*`.
const ADD: u32 = 0;
const DELETE: u32 = 1;
const SYNC: u32 = 2;
/// The flags `IBV_OPS_SIGNALED` and `IBV_OPS_TM_SYNC`.
const SIGNALED: c_int = 1;
const REPORTS: c_int = 1 << 1;

pub(crate) extern "C" fn post_srq_ops<'a>(
    srq: *mut ibv_srq,
    list: RequestList<'a, ibv_ops_wr>,
    bad_op: Out<'_, RequestList<'a, ibv_ops_wr>>,
) -> c_int {
    status_of(Call::ibv_post_srq_ops, CallSubject::on(srq), || {
        let held = live::<Srq>(srq).inspect_err(|_| refuse(list, bad_op))?;
        let (mut rest, mut count) = (list, 0);
        while let Some((operation, next)) = rest.split_first() {
            let done = list.check_end(rest, count).and_then(|()| change(&held, &operation));
            done.inspect_err(|_| refuse(rest, bad_op))?;
            (rest, count) = (next, count + 1);
        }
        Ok(())
    })
}

fn change(srq: &Srq, listed: &ListedRequest<'_, ibv_ops_wr>) -> Result<(), Errno> {
    let c = listed.get();
    if c.flags & !(SIGNALED | REPORTS) != 0 {
        return Err(INVALID);
    }
    let change = match c.opcode {
        ADD => TagChange::Add(TagBuffer {
            wr_id: c.recv_wr_id,
            tag: c.tag,
            mask: c.mask,
            sges: listed.elements()?.to_vec(),
        }),
        DELETE => TagChange::Delete(c.handle.get()),
        SYNC => TagChange::None,
        _ => return Err(INVALID),
    };
    //= man:ibv_post_srq_ops
    //| The number of handled messages counts with the flag TM_SYNC, and for IBV_WR_TAG_SYNC.
    let reports = c.opcode == SYNC || c.flags & REPORTS != 0;
    let operation = TagOperation {
        wr_id: c.wr_id,
        signaled: c.flags & SIGNALED != 0,
        handled: reports.then_some(c.unexpected_cnt),
        change,
    };
    let handle = srq.hca().change_tags(srq.handle(), operation)?;
    if c.opcode == ADD {
        c.handle.set(handle);
    }
    Ok(())
}

//! `rdma_resolve_addrinfo`: an `rdma_getaddrinfo` whose answer is an event.

use std::ffi::{c_char, c_int};
use std::ptr;
use std::sync::Arc;

use super::address_info::{RAI_SA, rdma_freeaddrinfo, rdma_getaddrinfo};
use super::channel::LocalEvent;
use super::endpoint::complete;
use super::event::{ADDRINFO_ERROR, ADDRINFO_RESOLVED};
use super::id::Id;
use crate::ground::abi::{rdma_addrinfo, rdma_cm_id};
use crate::ground::errno::{Errno, INVALID, errno};
use crate::ground::outcome::number;

/// An answer that the program has not asked for yet.
#[derive(Default)]
pub(crate) struct Question {
    answer: Option<Answer>,
}

struct Answer(*mut rdma_addrinfo);

impl Drop for Answer {
    fn drop(&mut self) {
        // SAFETY: from `rdma_getaddrinfo`, and nobody else's.
        unsafe { rdma_freeaddrinfo(self.0) };
    }
}

/// Names are looked up at once, by the C library; a name that does not exist is ADDRINFO_ERROR with the
/// `EAI_*` as its status.
pub(crate) unsafe extern "C" fn rdma_resolve_addrinfo(
    id: *mut rdma_cm_id,
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> c_int {
    number(|| {
        // SAFETY: null or live; null or the caller's structure.
        let (own, flags) = unsafe { (Id::of(id)?, hints.as_ref().map_or(0, |hints| hints.ai_flags)) };
        if flags & RAI_SA != 0 {
            return Err(Errno(libc::ENOTSUP).because(|| {
                "names of services are InfiniBand's (RAI_SA): RoCE has no subnet administration".to_owned()
            }));
        }
        if own.state().question.answer.is_some() {
            return Err(Errno(libc::EBUSY)
                .because(|| "the last answer was not asked for yet: rdma_query_addrinfo".to_owned()));
        }
        let mut found = ptr::null_mut();
        // SAFETY: the caller's texts and structure.
        let code = unsafe { rdma_getaddrinfo(node, service, hints, &mut found) };
        if code == -1 {
            return Err(Errno(errno()));
        }
        {
            let mut state = own.state();
            let (event, status) = if code == 0 { (ADDRINFO_RESOLVED, 0) } else { (ADDRINFO_ERROR, code) };
            state.question.answer = (code == 0).then_some(Answer(found));
            state.channel.push(LocalEvent { id: Arc::clone(&own), event, status });
        }
        complete(&own)
    })
}

/// Gives the answer to the program, which frees it.
pub(crate) unsafe extern "C" fn rdma_query_addrinfo(
    id: *mut rdma_cm_id,
    info: *mut *mut rdma_addrinfo,
) -> c_int {
    number(|| {
        // SAFETY: null or live.
        let own = unsafe { Id::of(id) }?;
        if info.is_null() {
            return Err(INVALID);
        }
        let answer = own.state().question.answer.take().ok_or(Errno(libc::ENOENT))?;
        // SAFETY: the caller's variable.
        unsafe { info.write(answer.0) };
        std::mem::forget(answer);
        Ok(0)
    })
}

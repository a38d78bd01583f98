//! Posting of send requests, and the checks that refuse them.

use super::QueuePair;
use super::responder::packets_of;
use super::settings::QpSettings;
use crate::event::{QpEvent, Topic};
use crate::host::Host;
use crate::types::{
    Cause, LocalData, MAX_MESSAGE_BYTES, Operand, PostError, QpCapacity, QpState, SendFlags, SendRequest,
    WcStatus, WrClass, WrInfo,
};

/// Checks a request and returns its length in bytes.
pub(crate) fn check(
    settings: &QpSettings,
    capacity: &QpCapacity,
    request: &SendRequest<'_>,
) -> Result<u32, PostError> {
    let (opcode, info) = (request.opcode, request.opcode.info());
    //= man:ibv_post_send
    //| The table of the manual page says which operations a type of queue pair has.
    if !info.qp_types.contains(settings.qp_type) {
        return Err(PostError::WrongOpcode { opcode, qp_type: settings.qp_type });
    }
    let given = given_bytes(capacity, request, info)?;
    //= statement:49
    //| A message of more than 2^31 bytes is refused at the post.
    if given > MAX_MESSAGE_BYTES {
        return Err(PostError::MessageTooLong { given });
    }
    if info.data.is_word() {
        if given != 8 {
            return Err(PostError::NotEightBytes { given });
        }
        //= linux:rxe_verbs.c#validate_send_wr
        //| An atomic operation at an unaligned address is refused at the post.
        if !request.faults_complete && !request.remote.address.is_multiple_of(8) {
            return Err(PostError::Misaligned { address: request.remote.address });
        }
    }
    if settings.qp_type.is_srd() {
        check_srd(settings, request, info)?;
    }
    match info.operand {
        Operand::Atomic if request.atomic.is_none() => {
            return Err(PostError::Incomplete { missing: "the operand of the atomic" });
        }
        Operand::FlushRange if request.flush.is_none() => {
            return Err(PostError::Incomplete { missing: "the range of the FLUSH" });
        }
        Operand::KeyConfiguration if request.key.is_none() => {
            return Err(PostError::Incomplete { missing: "what to make of the key" });
        }
        Operand::CopyTarget if request.copy_to.is_none() => {
            return Err(PostError::Incomplete { missing: "the target of the copy" });
        }
        _ => {}
    }
    if settings.qp_type.is_dc_initiator() && request.dc.is_none() {
        return Err(PostError::Incomplete { missing: "the target of DC (mlx5dv_wr_set_dc_addr)" });
    }
    if settings.qp_type.is_datagram() && request.ud.is_none() {
        // Callers that want faults as completions have checked the address handle themselves.
        return Err(if request.faults_complete {
            PostError::ForeignAddressHandle
        } else {
            PostError::Incomplete { missing: "the address handle of the datagram" }
        });
    }
    // The length is at most 2^31, which fits 32 bits.
    Ok(if info.data == LocalData::Unused { 0 } else { given as u32 })
}

/// Checks the further rules that SRD has for a request.
fn check_srd(settings: &QpSettings, request: &SendRequest<'_>, info: &WrInfo) -> Result<(), PostError> {
    let allowed = SendFlags::SIGNALED | SendFlags::INLINE;
    let signaled = settings.signal_all || request.flags.contains(SendFlags::SIGNALED);
    if !signaled || !allowed.contains(request.flags) {
        return Err(PostError::FlagsOfSrd);
    }
    if info.names_remote_memory() && request.sges.len() > 1 {
        return Err(PostError::BuffersOfSrd);
    }
    Ok(())
}

/// Returns the length in bytes of the inline data, or of the local buffers.
fn given_bytes(capacity: &QpCapacity, request: &SendRequest<'_>, info: &WrInfo) -> Result<u64, PostError> {
    if !request.flags.contains(SendFlags::INLINE) {
        let given = request.sges.len();
        //= linux:rxe_verbs.c#validate_send_wr
        //| A request has at most as many buffers as its queue was made for.
        if given > capacity.max_send_sge as usize {
            return Err(PostError::TooManySges { given, allowed: capacity.max_send_sge });
        }
        return Ok(request.sges.iter().map(|sge| u64::from(sge.length)).sum());
    }
    if !info.data.is_sent() {
        return Err(PostError::InlineNotAllowed { opcode: request.opcode });
    }
    let given = request.inline_data.len() as u64;
    //= statement:39
    //| Inline data is as long as the queue pair was made for, at most.
    if given > u64::from(capacity.max_inline_data) {
        return Err(PostError::InlineTooLong { given, allowed: capacity.max_inline_data });
    }
    Ok(given)
}

/// Returns the length of a request on the wire in bytes, which includes signature fields of its buffers.
#[inline]
fn on_wire<H: Host>(request: &SendRequest<'_>, length_bytes: u32, host: &mut H) -> u32 {
    let is_data = length_bytes > 0 && !request.flags.contains(SendFlags::INLINE);
    let bytes = if is_data && request.opcode.info().class != WrClass::Local {
        host.wire_bytes(request.sges)
    } else {
        None
    };
    bytes.and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(length_bytes)
}

impl QueuePair {
    /// Checks whether [`QueuePair::post_send`] would accept a request if its queue had room for it.
    ///
    /// # Errors
    /// Fails as [`QueuePair::post_send`], except for a full queue.
    pub fn check_send(&self, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.check_state()?;
        match check(&self.settings, &self.capacity, request) {
            Err(error) if !request.faults_complete || error.completion().is_none() => Err(error),
            _ => Ok(()),
        }
    }

    /// Reports whether all of the newest `count` send requests make no completion if they succeed: their
    /// entries would then never be freed.
    pub fn is_unsignaled(&self, count: u32) -> bool {
        self.requester.queue.is_unsignaled(count)
    }

    fn check_state(&self) -> Result<(), PostError> {
        //= linux:rxe_verbs.c#rxe_post_send
        //| A send request is refused before the queue pair is in RTS.
        if matches!(self.state, QpState::Reset | QpState::Init | QpState::Rtr) {
            return Err(PostError::WrongState { state: self.state });
        }
        Ok(())
    }

    /// Posts a send request. In ERR and SQE it completes as flushed at once. With `faults_complete`, faults
    /// that adapters find only later are logged now and become the request's completion when its turn comes.
    ///
    /// # Errors
    /// Fails if the request is malformed, if the state accepts none, or if the queue is full; the request
    /// then has no effect.
    pub fn post_send<H: Host>(&mut self, request: &SendRequest<'_>, host: &mut H) -> Result<(), PostError> {
        self.check_state()?;
        let (length_bytes, fault) = match check(&self.settings, &self.capacity, request) {
            Ok(length_bytes) => (on_wire(request, length_bytes, host), None),
            Err(error) if !request.faults_complete => return Err(error),
            Err(error) => (0, Some((error.completion().ok_or(error)?, error))),
        };
        if self.numbered.is_some() {
            return self.post_numbered(request, length_bytes, fault, host);
        }
        //= linux:rxe_verbs.c#post_one_send
        //| A full queue refuses the request, which is not kept.
        if self.requester.queue.is_full() {
            return Err(PostError::QueueFull {
                depth: self.capacity.max_send_wr,
                all_unsignaled: self.is_unsignaled(self.capacity.max_send_wr),
            });
        }
        //= man:ibv_create_qp
        //| All requests are signaled if the queue pair was made with sq_sig_all.
        let signaled = self.settings.signal_all || request.flags.contains(SendFlags::SIGNALED);
        let packet_count = if request.opcode.info().class == WrClass::Local {
            0
        } else if self.settings.qp_type.is_datagram() {
            1
        } else {
            packets_of(length_bytes, self.settings.mtu_bytes)
        };
        let first_psn = self.requester.psns.next_psn;
        let queue = &mut self.requester.queue;
        queue
            .push(request, signaled, length_bytes, first_psn, packet_count)
            .map_err(|_| PostError::NoMemory)?;
        self.requester.psns.next_psn = first_psn.plus(packet_count);
        if let Some(key) = &request.key {
            host.key_posted(self.settings.context.pd, key);
        }
        if let Some((status, error)) = fault {
            self.requester.queue.fault_newest(status);
            let cause = Cause::RequestFaulty { wr_id: request.wr_id, status, error };
            host.log(&self.settings.context, cause);
        } else if self.attributes.max_rd_atomic == 0 && request.opcode.info().needs_response() {
            self.warn_read_depth(request, host);
        }
        if host.listens(Topic::Posts) {
            let (wr_id, opcode) = (request.wr_id, request.opcode);
            let message = self.requester.queue.tail().wrapping_sub(1);
            let psn = first_psn;
            let inline = request.flags.contains(SendFlags::INLINE);
            let event = QpEvent::SendPosted {
                wr_id,
                message,
                opcode,
                length_bytes,
                psn,
                packet_count,
                signaled,
                inline,
                request,
            };
            host.emit_uncounted(&self.settings.context, &event);
        }
        //= linux:rxe_req.c#rxe_requester
        //| A request that is posted in ERR is flushed.
        if matches!(self.state, QpState::Err | QpState::Sqe) {
            self.requester.flush(&self.settings, host);
        }
        Ok(())
    }

    /// Posts a request, which was checked, of a service that numbers its messages.
    fn post_numbered<H: Host>(
        &mut self,
        request: &SendRequest<'_>,
        length_bytes: u32,
        fault: Option<(WcStatus, PostError)>,
        host: &mut H,
    ) -> Result<(), PostError> {
        let Some(numbered) = &mut self.numbered else { return Ok(()) };
        if numbered.is_full() {
            return Err(PostError::QueueFull { depth: self.capacity.max_send_wr, all_unsignaled: false });
        }
        let settings = &self.settings;
        let status = fault.map(|(status, _)| status);
        numbered.post(settings, request, length_bytes, status, host).map_err(|_| PostError::NoMemory)?;
        if let Some((status, error)) = fault {
            let cause = Cause::RequestFaulty { wr_id: request.wr_id, status, error };
            host.log(&settings.context, cause);
        }
        if self.state == QpState::Err {
            numbered.flush(settings, host);
        }
        Ok(())
    }

    /// Logs once that a READ or atomic was posted to a queue pair that may have none outstanding.
    #[cold]
    fn warn_read_depth<H: Host>(&mut self, request: &SendRequest<'_>, host: &mut H) {
        if !core::mem::replace(&mut self.requester.doubts_depth, true) {
            let (wr_id, opcode) = (request.wr_id, request.opcode);
            host.log(&self.settings.context, Cause::NoReadDepth { wr_id, opcode });
        }
    }
}

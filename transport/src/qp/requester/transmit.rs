//! Conversion of the send queue into packets: the same for RC, UC, UD and XRC.

use alloc::sync::Arc;

use super::request::RequestPacket;
use super::{Outstanding, Requester, SendFailure};
use crate::event::{PacketIdentity, PacketSide, Topic};
use crate::host::{FrameData, FrameError, Host, MemoryError, RemoteKey, Transmit, fault_of};
use crate::path::Path;
use crate::qp::dcqcn::Paced;
use crate::qp::outbound::{self, EmitOutcome, Progress, WrittenPacket};
use crate::qp::send_queue::SendWqe;
use crate::qp::settings::QpSettings;
use crate::types::{MemoryFault, Operand, SendFlags, WcStatus, WrClass};
use crate::wire::{Bth, Extensions, Psn};

/// Result of sending the packet at the cursor.
enum SendOutcome {
    Packet,
    NoRoom,
    LocalError(WcStatus),
}

/// Result of executing the local operation at the cursor.
enum LocalOutcome {
    Done,
    /// The operation waits for the requests before it.
    Waits,
    Failed(WcStatus, Option<MemoryFault>),
}

/// Reason why the payload of a packet is not available.
enum NoPayload {
    /// There is less inline data than the request says.
    TooShort,
    Memory(MemoryError),
}

impl Requester {
    /// Sends what the window, the sink and the rules of order allow.
    ///
    /// # Errors
    /// Fails if the request at the head of the queue failed locally.
    #[inline(always)]
    pub(crate) fn transmit<H: Host, T: Transmit>(
        &mut self,
        settings: &QpSettings,
        draining: bool,
        now_ns: u64,
        host: &mut H,
        sink: &mut T,
    ) -> Result<Progress, SendFailure> {
        loop {
            //= statement:22
            //| No packet leaves while the requester waits for the receiver.
            if self.retries.rnr_until_ns.is_some() {
                return Ok(Progress::Idle);
            }
            self.fail_if_due(settings)?;
            if self.failures.local_failure.is_some() || self.waits_for_injected_answer() {
                return Ok(Progress::Idle);
            }
            //= linux:rxe_req.c#req_check_sq_drain_done
            //| A draining send queue finishes what it has started and starts nothing.
            if draining && self.position.cursor >= self.position.started {
                return Ok(Progress::Idle);
            }
            let Some(wqe) = self.queue.entry(self.position.cursor) else { return Ok(Progress::Idle) };
            if let Some(status) = wqe.fault() {
                self.failures.local_failure = Some((self.position.cursor, status));
                continue;
            }
            if wqe.is_local() {
                if !self.execute_local(settings, host) {
                    return Ok(Progress::Idle);
                }
                continue;
            }
            if self.must_wait(settings, wqe) || !self.may_leave(now_ns) {
                return Ok(Progress::Idle);
            }
            match self.send_one(settings, now_ns, host, sink) {
                SendOutcome::Packet if self.has_injected_answer() => {
                    self.apply_injected_answer(settings, now_ns, host)?
                }
                SendOutcome::Packet => {}
                SendOutcome::NoRoom => return Ok(Progress::Blocked),
                SendOutcome::LocalError(status) => {
                    self.failures.local_failure = Some((self.position.cursor, status))
                }
            }
            //= linux:rxe_net.c#rxe_xmit_packet
            //| A request of UC or UD is done when its last packet was handed to the network.
            if !settings.qp_type.is_reliable() {
                // A packet of an unreliable service is done when the network has it.
                self.psns.acked = self.cursor_psn();
                self.complete_ready(settings, host);
            }
        }
    }

    /// Reports whether the window, a fence or the limit of outstanding READs and atomics makes a request
    /// wait.
    #[inline]
    fn must_wait(&self, settings: &QpSettings, wqe: &SendWqe) -> bool {
        if !settings.qp_type.is_reliable() {
            return false;
        }
        //= statement:28
        //| A fence waits for earlier READs and atomic operations, and not for SENDs and WRITEs.
        let fenced = wqe.flags.contains(SendFlags::FENCE) && self.position.cursor_packet == 0;
        if fenced && (!self.outstanding.is_empty() || self.may_stop(settings)) {
            return true;
        }
        //= statement:27
        //| The number of READs and atomic operations under way is limited, and no request overtakes.
        if wqe.needs_response() && self.outstanding.len() >= settings.read_depth() {
            return true;
        }
        if wqe.info().class == WrClass::Read && !self.outstanding.is_empty() {
            // All READs' responses together must fit this side's receive buffer.
            let (at, part) = (self.position.cursor_packet, self.read_part_packets(settings));
            let wanted = wqe.span.packet_count.saturating_sub(at).min(part - at % part);
            if self.in_flight() + wanted > self.read_limit_packets {
                return true;
            }
        }
        self.in_flight() >= self.window.packets()
    }

    /// Returns the length of the parts into which a long READ is split, in packets: half of what may be in
    /// flight, so that the next part is on its way before the responses to this one have come. Where one
    /// request alone may be outstanding, its parts would wait for each other.
    fn read_part_packets(&self, settings: &QpSettings) -> u32 {
        let parts = if settings.read_depth() > 1 { 2 } else { 1 };
        (self.read_limit_packets / parts).max(1)
    }

    /// Reports whether the request at the cursor, which has a fence, might have to stop: data of requests
    /// before it does not fit its signatures, or that is not known yet.
    fn may_stop(&self, settings: &QpSettings) -> bool {
        settings.stops_at_bad_signature
            && (self.failures.has_bad_signature || self.position.cursor > self.queue.head())
    }

    /// Reports whether the rate lets a packet leave now.
    #[inline]
    fn may_leave(&mut self, now_ns: u64) -> bool {
        self.pacer.as_mut().is_none_or(|pacer| pacer.admits(Paced::Requests, now_ns))
    }

    /// Executes the local operation at the cursor, for example LOCAL_INV or BIND_MW. Returns false if it has
    /// to wait.
    fn execute_local<H: Host>(&mut self, settings: &QpSettings, host: &mut H) -> bool {
        let is_first = self.position.cursor == self.queue.head();
        let cursor = self.position.cursor;
        let Some(wqe) = self.queue.entry_mut(cursor) else { return false };
        if !wqe.executed {
            match execute(settings, wqe, is_first, host) {
                LocalOutcome::Done => wqe.executed = true,
                LocalOutcome::Waits => return false,
                LocalOutcome::Failed(status, fault) => {
                    self.failures.fault = fault;
                    self.failures.local_failure = Some((cursor, status));
                    return true;
                }
            }
        }
        self.position.cursor += 1;
        self.position.cursor_packet = 0;
        self.position.started = self.position.started.max(self.position.cursor);
        self.complete_ready(settings, host);
        true
    }

    fn send_one<H: Host, T: Transmit>(
        &mut self,
        settings: &QpSettings,
        now_ns: u64,
        host: &mut H,
        sink: &mut T,
    ) -> SendOutcome {
        let Some(wqe) = self.queue.entry(self.position.cursor) else { return SendOutcome::NoRoom };
        let path = match path_of(settings, wqe) {
            Ok(path) => path,
            Err(_) if settings.qp_type.is_raw() => return self.send_frame(settings, now_ns, host),
            Err(status) => return SendOutcome::LocalError(status),
        };
        let read_part = self.read_part_packets(settings);
        let Some(request) = RequestPacket::of(settings, wqe, self.position.cursor_packet, read_part) else {
            return SendOutcome::LocalError(WcStatus::LocQpOpErr);
        };
        let psn = wqe.span.first_psn.plus(self.position.cursor_packet);
        let mut bth = request.bth(settings, wqe, psn);
        let ack_request = settings.qp_type.is_reliable() && self.asks_for_ack(&request, psn);
        bth.ack_request = ack_request;
        let extend = |extensions: &mut Extensions<'_>| request.extend(settings, wqe, extensions);
        let emitted = outbound::emit(path, &mut bth, request.payload_bytes, sink, extend, |payload| {
            gather(settings, wqe, request.payload_offset, payload, host)
        });
        match emitted {
            Ok(EmitOutcome::Packet) if request.payload_bytes > 0 && !wqe.is_inline() => sink.note_fetch(),
            Ok(EmitOutcome::Packet) => {}
            Ok(EmitOutcome::NoRoom) => return SendOutcome::NoRoom,
            Err(NoPayload::TooShort) => return SendOutcome::LocalError(WcStatus::LocLenErr),
            Err(NoPayload::Memory(error)) => {
                self.failures.fault = Some(fault_of(settings.context.pd, wqe.sges(), error, false, host));
                return SendOutcome::LocalError(WcStatus::LocProtErr);
            }
        }
        if let Some(pacer) = &mut self.pacer {
            let sent = (&**path, outbound::packet_bytes(bth.opcode, request.payload_bytes));
            pacer.handle_sent(Paced::Requests, sent, now_ns, &settings.context, host);
        }
        if host.listens(Topic::Packets) {
            self.report_sent(settings, &request, &bth, now_ns, host, sink);
        } else {
            self.advance(settings, &request, psn, ack_request, now_ns);
        }
        SendOutcome::Packet
    }

    /// Reports the packet at the cursor, which is in the sink, applies its fate, and moves on.
    #[cold]
    #[inline(never)]
    fn report_sent<H: Host, T: Transmit>(
        &mut self,
        settings: &QpSettings,
        request: &RequestPacket,
        bth: &Bth,
        now_ns: u64,
        host: &mut H,
        sink: &mut T,
    ) {
        let psn = bth.psn;
        let psn_count = request.response_count.unwrap_or(1);
        let identity = PacketIdentity {
            side: PacketSide::Requester,
            message: self.position.cursor,
            relative_psn: PacketIdentity::relative(psn, self.psns.first_psn),
            transmission: self.transmissions.note(psn, psn_count),
        };
        let wqe = self.queue.entry(self.position.cursor);
        let Some(path) = wqe.and_then(|wqe| path_of(settings, wqe).ok()) else { return };
        let payload_bytes = request.payload_bytes;
        let written = WrittenPacket { identity, bth, aeth: None, payload_bytes, psn_count, path };
        let fate = outbound::emit_sent(settings, &written, host, sink);
        // A packet that did not ask is in the same message.
        let unasked = self.position.packets_since_ack_request;
        let before =
            (unasked > 0).then(|| (self.position.cursor, self.position.cursor_packet.saturating_sub(1)));
        self.advance(settings, request, psn, bth.ack_request, now_ns);
        if fate.refused.is_some() || fate.notified || fate.halted {
            self.inject_answer(settings, &fate, psn, before, now_ns, host);
        }
    }

    /// Sends the Ethernet frame at the cursor, which the host takes as a whole.
    #[cold]
    #[inline(never)]
    fn send_frame<H: Host>(&mut self, settings: &QpSettings, now_ns: u64, host: &mut H) -> SendOutcome {
        let Some(wqe) = self.queue.entry(self.position.cursor) else { return SendOutcome::NoRoom };
        let data = match wqe.is_inline() {
            true => FrameData::Inline(wqe.inline_data()),
            false => FrameData::Buffers(wqe.sges()),
        };
        match host.send_frame(&settings.context, data, wqe.span.length_bytes) {
            Ok(()) => {}
            Err(FrameError::Length) => return SendOutcome::LocalError(WcStatus::LocLenErr),
            Err(FrameError::Memory(error)) => {
                self.failures.fault = Some(fault_of(settings.context.pd, wqe.sges(), error, false, host));
                return SendOutcome::LocalError(WcStatus::LocProtErr);
            }
        }
        if let Some(pacer) = &mut self.pacer {
            pacer.handle_frame(wqe.span.length_bytes, now_ns);
        }
        self.position.cursor += 1;
        self.position.started = self.position.started.max(self.position.cursor);
        SendOutcome::Packet
    }

    /// Reports whether a packet to a reliable peer asks for an acknowledgement.
    #[inline(always)]
    fn asks_for_ack(&self, request: &RequestPacket, psn: Psn) -> bool {
        let window_left = self.window.packets().saturating_sub(self.in_flight()).max(1);
        //= linux:rxe_req.c#init_req_packet
        //| The last packet of each message asks for an acknowledgement.
        request.ends_message
            || request.response_count.is_some()
            || window_left == 1
            || self.position.packets_since_ack_request + 1 >= self.window.ack_interval()
            || self.is_last_before_injected_answer(psn)
    }

    /// Moves the cursor on, because its packet was sent.
    #[inline(always)]
    pub(super) fn advance(
        &mut self,
        settings: &QpSettings,
        request: &RequestPacket,
        psn: Psn,
        ack_request: bool,
        now_ns: u64,
    ) {
        let unasked = self.position.packets_since_ack_request;
        self.position.packets_since_ack_request = if ack_request { 0 } else { unasked + 1 };
        let count = request.response_count.unwrap_or(1);
        if request.response_count.is_some() {
            //= linux:rxe_req.c#check_init_depth
            //| Each READ and each atomic operation takes one of the granted places.
            let repeated = psn.is_before(self.psns.sent_end);
            self.outstanding.push_back(Outstanding { first_psn: psn, count, repeated });
        }
        let end = psn.plus(count);
        if end.is_after(self.psns.sent_end) {
            self.psns.sent_end = end;
            if ack_request {
                self.window.on_sent(psn, now_ns);
            }
        }
        self.position.cursor_packet += count;
        self.position.started = self.position.started.max(self.position.cursor + 1);
        if request.ends_message {
            self.position.cursor += 1;
            self.position.cursor_packet = 0;
        }
        if settings.qp_type.is_reliable() {
            self.start_timers(settings, now_ns);
        }
    }
}

/// Executes a local operation: LOCAL_INV, which waits for everything before it, or one that only keeps its
/// place in the order.
fn execute<H: Host>(settings: &QpSettings, wqe: &SendWqe, is_first: bool, host: &mut H) -> LocalOutcome {
    let outcome = match wqe.info().operand {
        Operand::Window => match wqe.bind() {
            Some(bind) => host.bind_window(&settings.context, &bind),
            None => return LocalOutcome::Failed(WcStatus::MwBindErr, None),
        },
        Operand::KeyConfiguration => match wqe.key() {
            Some(key) => host.configure_key(&settings.context, key),
            None => return LocalOutcome::Failed(WcStatus::MwBindErr, None),
        },
        Operand::CopyTarget => return copy_memory(settings.context.pd, wqe, host),
        //= linux:rxe_req.c#rxe_wqe_is_fenced
        //| LOCAL_INV waits until all requests before it have completed.
        _ if !is_first => return LocalOutcome::Waits,
        _ => {
            let (pd, qpn) = (settings.context.pd, settings.context.qpn);
            host.invalidate(RemoteKey { rkey: wqe.invalidate_rkey, pd, qpn })
        }
    };
    match outcome {
        Ok(()) => LocalOutcome::Done,
        //= ibta-1.5#11.6.2
        //| A failed operation on a window ends with the status of a memory management operation error.
        Err(error) => {
            let fault = MemoryFault::of_error(error, false);
            LocalOutcome::Failed(WcStatus::MwBindErr, Some(fault))
        }
    }
}

/// Number of bytes that COPY_MEMORY copies at a time.
const COPIED_AT_ONCE: usize = 4096;

/// Copies the buffers of a request to its target.
#[cold]
fn copy_memory<H: Host>(pd: u32, wqe: &SendWqe, host: &mut H) -> LocalOutcome {
    let Some(target) = wqe.copy_to() else { return LocalOutcome::Failed(WcStatus::LocQpOpErr, None) };
    let (length, target) = (u64::from(wqe.span.length_bytes), [target]);
    let mut room = [0; COPIED_AT_ONCE];
    let mut done = 0;
    while done < length {
        let now = (length - done).min(COPIED_AT_ONCE as u64);
        let Some(bytes) = room.get_mut(..now as usize) else { break };
        let copied = host.gather(pd, wqe.sges(), done, bytes).map_err(|error| (wqe.sges(), error, false));
        let copied = copied.and_then(|()| {
            host.scatter(pd, &target, done, bytes).map_err(|error| (&target[..], error, true))
        });
        if let Err((buffers, error, stores)) = copied {
            let fault = fault_of(pd, buffers, error, stores, host);
            return LocalOutcome::Failed(WcStatus::LocProtErr, Some(fault));
        }
        done += now;
    }
    LocalOutcome::Done
}

/// Returns the path of a request: to the connected peer, or to a datagram's destination.
///
/// # Errors
/// Fails if the request cannot be sent.
#[inline]
fn path_of<'a>(settings: &'a QpSettings, wqe: &'a SendWqe) -> Result<&'a Arc<Path>, WcStatus> {
    if !settings.qp_type.is_datagram() {
        return settings.path.as_ref().ok_or(WcStatus::LocQpOpErr);
    }
    let destination = wqe.ud().ok_or(WcStatus::LocQpOpErr)?;
    if wqe.span.length_bytes as usize > settings.mtu_bytes {
        return Err(WcStatus::LocLenErr);
    }
    Ok(&destination.path)
}

/// Copies bytes of the request's data into a packet.
#[inline]
fn gather<H: Host>(
    settings: &QpSettings,
    wqe: &SendWqe,
    offset: u64,
    payload: &mut [u8],
    host: &mut H,
) -> Result<(), NoPayload> {
    if !wqe.is_inline() {
        return host.gather(settings.context.pd, wqe.sges(), offset, payload).map_err(NoPayload::Memory);
    }
    //= statement:39
    //| Inline data was copied at the post and needs no key.
    let start = offset as usize;
    let data = wqe.inline_data().get(start..start + payload.len()).ok_or(NoPayload::TooShort)?;
    payload.copy_from_slice(data);
    Ok(())
}

//! Queue pairs, the options that they agree on with their peers, and the requests of `ibv_wr_*` calls.
//!
//! A new queue pair has all options of the device. Options that a program sets apply from the next successful
//! `ibv_modify_qp` on; until then the queue pair has none.

use std::ffi::c_int;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use pumice_device::hca::{Hca, TargetRegistration};
use pumice_device::outside::fork_generation::Generation;
use pumice_device::platform::table::Handle;
use pumice_transport::types::{QpCapacity, SendFlags, SendRequest, Sge, VendorService};
use pumice_transport::wire::Qpn;

use super::Context;
use super::domains::UseGuard;
use super::events::EventSource;
use super::memory_region::Mw;
use crate::abi::{
    efadv_qp, ibv_context, ibv_pd, ibv_qp, ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr, mlx5dv_qp_ex,
};
use crate::entry::arguments::{In, Trusted};
use crate::entry::handles::{
    CObject, DataPathObject, HandleIdentity, RegisteredObject, SharedStruct, find_at, show, shown,
};
use crate::gate::CallSubject;
use crate::platform::Errno;
use crate::platform::threads::TurnCell;

/// The options of a queue pair.
pub(crate) struct EceOptions {
    /// Options that the device has.
    device: u32,
    /// Options that the queue pair has, and in the upper half those that the program has set since.
    state: AtomicU64,
}

impl EceOptions {
    /// Creates the options of a new queue pair, on a device that has these.
    pub(crate) const fn new(device: u32) -> EceOptions {
        EceOptions { device, state: AtomicU64::new(device as u64) }
    }

    /// Returns the options that the device has.
    pub(crate) const fn of_device(&self) -> u32 {
        self.device
    }

    /// Returns the options that the queue pair has.
    pub(crate) fn get(&self) -> u32 {
        self.state.load(Ordering::Relaxed) as u32
    }

    /// Sets options for the program.
    pub(crate) fn set(&self, options: u32) {
        self.state.store(u64::from(options) << 32, Ordering::Relaxed);
    }

    /// Applies, after the queue pair was modified, those of the set options that the device has.
    pub(crate) fn modified(&self) {
        let wanted = (self.state.load(Ordering::Relaxed) >> 32) as u32;
        if wanted != 0 {
            self.state.store((wanted & self.device).into(), Ordering::Relaxed);
        }
    }
}

/// Requests, and the elements and inline bytes that they use. The memory is reused for the next series.
pub(crate) struct SendSeries {
    pub(crate) requests: Vec<SeriesRequest>,
    pub(crate) sges: Vec<Sge>,
    pub(crate) inline_data: Vec<u8>,
    pub(crate) refused: Option<Errno>,
    /// Number of calls that must still set fields of the last request, which configures a memory key.
    pub(crate) setters_left: u8,
    /// Largest number of pieces of that key.
    pub(crate) max_pieces: usize,
    /// True if the key may have signatures.
    pub(crate) key_has_signatures: bool,
}

/// A request, and its ranges of the series' elements and bytes.
pub(crate) struct SeriesRequest {
    pub(crate) request: SendRequest<'static>,
    pub(crate) sges: Range<usize>,
    pub(crate) inline_data: Range<usize>,
    /// Window that the request binds.
    pub(crate) window: Option<Arc<Mw>>,
}

impl SendSeries {
    /// Number of requests that there is room for from the beginning.
    const ROOM: u32 = 64;

    pub(crate) fn new(capacity: &QpCapacity) -> SendSeries {
        let room = capacity.max_send_wr.min(SendSeries::ROOM) as usize;
        SendSeries {
            requests: Vec::with_capacity(room),
            sges: Vec::with_capacity(room * 2),
            inline_data: Vec::new(),
            refused: None,
            setters_left: 0,
            max_pieces: 0,
            key_has_signatures: false,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.sges.clear();
        self.inline_data.clear();
        self.refused = None;
        self.setters_left = 0;
    }

    /// Adds a request without elements and data.
    #[inline]
    pub(crate) fn start(&self, request: SendRequest<'static>) -> SeriesRequest {
        let (sges, inline) = (self.sges.len(), self.inline_data.len());
        SeriesRequest { request, sges: sges..sges, inline_data: inline..inline, window: None }
    }

    /// Returns the operations of the requests, as verbs number them.
    pub(crate) fn opcodes(&self) -> impl Iterator<Item = u32> + '_ {
        self.requests.iter().map(|part| part.request.opcode as u32)
    }

    /// Adds inline data to the last request.
    pub(crate) fn add_inline(&mut self, data: &[u8]) {
        self.inline_data.extend_from_slice(data);
        let end = self.inline_data.len();
        if let Some(last) = self.requests.last_mut() {
            last.request.flags |= SendFlags::INLINE;
            last.inline_data.end = end;
        }
    }
}

/// A queue pair; all have room for the extended structure.
#[repr(C)]
pub(crate) struct Qp {
    c: SharedStruct<ibv_qp_ex>,
    generation: Generation,
    parts: QpParts,
}

/// The parts of a queue pair beside its structure.
pub(crate) struct QpParts {
    pub(crate) hca: Arc<Hca>,
    pub(crate) number: Qpn,
    /// Its protection domain; XRC targets have none.
    pub(crate) domain: Option<Handle>,
    /// True for UD.
    pub(crate) is_datagram: bool,
    pub(crate) signals_all: bool,
    pub(crate) events: Arc<EventSource>,
    /// Registration of a target that was opened, not made.
    pub(crate) registration: Option<TargetRegistration>,
    /// Request series of the `ibv_wr_*` calls, if the queue pair was made for them.
    pub(crate) series: Option<Box<TurnCell<SendSeries>>>,
    /// Interface that a vendor call returns for it.
    pub(crate) vendor: OnceLock<Box<VendorQp>>,
    /// Port of a bond that the program has chosen for it; 0 for none.
    pub(crate) lag_port: AtomicU8,
    /// Options that it agrees on with its peer.
    pub(crate) ece: EceOptions,
    /// Way of its WRITEs, if MRC may carry them.
    pub(crate) way: Option<MrcWay>,
    /// Vendor's service that it is of.
    pub(crate) own: Option<VendorService>,
    pub(crate) _domain_use: Option<UseGuard>,
    /// Use of the table over which its frames are spread.
    pub(crate) _table_use: Option<UseGuard>,
}

/// The way of an RC queue pair's requests where MRC may carry them. The first request decides, and the way of
/// MRC can be left once.
pub(crate) struct MrcWay(AtomicU8);

impl MrcWay {
    const UNDECIDED: u8 = 0;
    const MRC: u8 = 1;
    const RC: u8 = 2;

    pub(crate) const fn new() -> MrcWay {
        MrcWay(AtomicU8::new(MrcWay::UNDECIDED))
    }

    /// Returns the way: true for MRC, false for RC; `None` before the first request.
    pub(crate) fn is_by_mrc(&self) -> Option<bool> {
        match self.0.load(Ordering::Relaxed) {
            MrcWay::UNDECIDED => None,
            way => Some(way == MrcWay::MRC),
        }
    }

    pub(crate) fn decide(&self, by_mrc: bool) {
        self.0.store(if by_mrc { MrcWay::MRC } else { MrcWay::RC }, Ordering::Relaxed);
    }

    /// Forgets the way, because the queue pair is connected anew.
    pub(crate) fn forget(&self) {
        self.0.store(MrcWay::UNDECIDED, Ordering::Relaxed);
    }
}

/// A vendor's interface with which programs set further fields of a request, beside `ibv_qp_ex`.
pub(crate) enum VendorQp {
    Efa(efadv_qp),
    Mlx5(Mlx5Qp),
}

/// The interface of mlx5.
#[repr(C)]
pub(crate) struct Mlx5Qp {
    c: mlx5dv_qp_ex,
    /// Queue pair that the interface belongs to.
    qp: *mut ibv_qp,
}

// SAFETY: its fields do not change once it is made, and its pointers are followed by calls only.
unsafe impl Send for VendorQp {}
// SAFETY: as for `Send`.
unsafe impl Sync for VendorQp {}

impl Mlx5Qp {
    /// Returns the queue pair of an interface that a program got.
    pub(crate) fn queue_pair_of<'a>(mlx5: In<'a, mlx5dv_qp_ex>) -> Option<Trusted<'a, ibv_qp>> {
        let c: *const mlx5dv_qp_ex = mlx5.optional()?;
        // SAFETY: the program passes on what `Qp::mlx5` gave it, which is the first field of an `Mlx5Qp`, and
        // the queue pair lives as long as that does.
        Some(unsafe { Trusted::new((*c.cast::<Mlx5Qp>()).qp) })
    }
}

// SAFETY: the first field begins with the C structure.
unsafe impl CObject for Qp {
    type C = ibv_qp;
}

impl RegisteredObject for Qp {
    const KIND: &'static str = "queue pair";

    fn identity(c: &ibv_qp) -> HandleIdentity {
        HandleIdentity::new(c.context, c.handle)
    }
}

impl DataPathObject for Qp {
    #[inline]
    fn generation(&self) -> Generation {
        self.generation
    }
}

impl Qp {
    pub(crate) fn new(c: ibv_qp_ex, parts: QpParts) -> Qp {
        Qp { c: SharedStruct::new(c), generation: Generation::own(), parts }
    }

    /// Tells the gate that a call is about this queue pair.
    #[inline]
    pub(crate) fn about(qp: *const ibv_qp) -> CallSubject {
        CallSubject::queue_pair(qp, |address| {
            let qp = find_at::<Qp>(address)?;
            qp.hca().ordinal_of(qp.number())
        })
    }

    #[inline]
    pub(crate) const fn hca(&self) -> &Arc<Hca> {
        &self.parts.hca
    }

    #[inline]
    pub(crate) const fn number(&self) -> Qpn {
        self.parts.number
    }

    /// Reports whether it was made by a vendor call (`IBV_QPT_DRIVER`).
    pub(crate) fn is_of_vendor(&self) -> bool {
        shown!(self.c, qp_base.qp_type) == 0xff
    }

    /// Returns its type (`IBV_QPT_*`).
    pub(crate) fn verbs_type(&self) -> u32 {
        shown!(self.c, qp_base.qp_type)
    }

    /// Reports whether it is UD.
    #[inline]
    pub(crate) const fn is_datagram(&self) -> bool {
        self.parts.is_datagram
    }

    /// Returns the source of its asynchronous events.
    pub(crate) fn events(&self) -> &EventSource {
        &self.parts.events
    }

    /// Returns the series of the thread that assembles requests with the `ibv_wr_*` calls.
    #[inline]
    pub(crate) fn series(&self) -> Option<&TurnCell<SendSeries>> {
        self.parts.series.as_deref()
    }

    /// Returns the interface with which programs of EFA set further fields of a request; `make` makes it at
    /// the first call.
    pub(crate) fn efa(&self, make: impl FnOnce() -> efadv_qp) -> *mut efadv_qp {
        match &**self.parts.vendor.get_or_init(|| Box::new(VendorQp::Efa(make()))) {
            VendorQp::Efa(c) => ptr::from_ref(c).cast_mut(),
            VendorQp::Mlx5(_) => ptr::null_mut(),
        }
    }

    /// Returns the same interface for mlx5. `qp` is the program's pointer to this queue pair.
    pub(crate) fn mlx5(&self, qp: *mut ibv_qp, make: impl FnOnce() -> mlx5dv_qp_ex) -> *mut mlx5dv_qp_ex {
        let new = || Box::new(VendorQp::Mlx5(Mlx5Qp { c: make(), qp }));
        match &**self.parts.vendor.get_or_init(new) {
            VendorQp::Mlx5(mlx5) => ptr::from_ref(mlx5).cast_mut().cast(),
            VendorQp::Efa(_) => ptr::null_mut(),
        }
    }

    /// Returns the way of its WRITEs, if MRC may carry them.
    pub(crate) const fn way(&self) -> Option<&MrcWay> {
        self.parts.way.as_ref()
    }

    /// Reports whether all requests make completions.
    pub(crate) const fn signals_all(&self) -> bool {
        self.parts.signals_all
    }

    /// Returns the vendor's service that it is of.
    pub(crate) const fn own_service(&self) -> Option<VendorService> {
        self.parts.own
    }

    /// Returns the options that it agrees on with its peer.
    pub(crate) const fn ece(&self) -> &EceOptions {
        &self.parts.ece
    }

    /// Returns the port of a bond of `ports` ports that it uses: the program's choice, or one by its number.
    pub(crate) fn lag_port(&self, ports: u8) -> u8 {
        match self.parts.lag_port.load(Ordering::Relaxed) {
            0 => 1 + (self.number().value() % u32::from(ports.max(1))) as u8,
            chosen => chosen,
        }
    }

    /// Sets the port of a bond that the program chooses for it.
    pub(crate) fn choose_lag_port(&self, port: u8) {
        self.parts.lag_port.store(port, Ordering::Relaxed);
    }

    /// Writes the number of a target of DC, which has one only from RTR on, into its structure.
    pub(crate) fn show_number(&self) {
        show!(self.c, qp_base.qp_num = self.number().value());
    }

    /// Returns the program's pointer to its protection domain.
    pub(crate) fn domain_pointer(&self) -> *mut ibv_pd {
        shown!(self.c, qp_base.pd)
    }

    /// Returns its protection domain; XRC targets have none.
    #[inline]
    pub(crate) const fn domain(&self) -> Option<Handle> {
        self.parts.domain
    }

    /// Returns the registration of a target that was opened, not made.
    pub(crate) const fn registration(&self) -> Option<TargetRegistration> {
        self.parts.registration
    }

    /// Returns its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(self.context_pointer())
    }

    /// Returns the program's pointer to its context.
    pub(crate) fn context_pointer(&self) -> *mut ibv_context {
        shown!(self.c, qp_base.context)
    }

    /// Returns `wr_id` and `wr_flags`, which programs set before an `ibv_wr_*` call.
    #[inline]
    pub(crate) fn next_request(&self) -> (u64, u32) {
        (shown!(self.c, wr_id), shown!(self.c, wr_flags))
    }

    /// Writes a state into its structure.
    pub(crate) fn show_state(&self, state: u32) {
        show!(self.c, qp_base.state = state);
    }

    /// Returns the attributes that it was made with, and the capacity that it got.
    pub(crate) fn made_with(&self, cap: ibv_qp_cap) -> ibv_qp_init_attr {
        ibv_qp_init_attr {
            qp_context: shown!(self.c, qp_base.qp_context),
            send_cq: shown!(self.c, qp_base.send_cq),
            recv_cq: shown!(self.c, qp_base.recv_cq),
            srq: shown!(self.c, qp_base.srq),
            cap,
            qp_type: shown!(self.c, qp_base.qp_type),
            sq_sig_all: c_int::from(self.parts.signals_all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_counts_from_the_next_change_of_the_queue_pair() {
        let options = EceOptions::new(0x3000_0002);
        options.modified();
        assert_eq!(options.get(), 0x3000_0002);
        options.set(0x1000_0006);
        assert_eq!(options.get(), 0);
        options.modified();
        assert_eq!(options.get(), 0x1000_0002);
        options.modified();
        assert_eq!(options.get(), 0x1000_0002);
        options.set(0);
        options.modified();
        assert_eq!(options.get(), 0);
    }
}

//! Queue pairs.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use pumice_device::ground::table::Handle;
use pumice_device::hca::{Hca, TargetRegistration};
use pumice_device::outside::lineage::Generation;
use pumice_transport::types::OwnService;
use pumice_transport::wire::Qpn;

use super::context::Context;
use super::events::EventSource;
use super::send_series::Series;
use super::usage::Use;
use crate::ground::abi::{
    efadv_qp, ibv_context, ibv_qp, ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr, mlx5dv_qp_ex,
};
use crate::ground::arguments::{In, Trusted};
use crate::ground::errno::Errno;
use crate::ground::gate::About;
use crate::ground::handles::{Held, Identity, Listed, OfProcess, Shown, find_at, show, shown};
use crate::ground::turn::Turn;

/// A queue pair; all have room for the extended structure.
#[repr(C)]
pub(crate) struct Qp {
    c: Shown<ibv_qp_ex>,
    generation: Generation,
    parts: Parts,
}

/// Everything that a queue pair is beside its structure.
pub(crate) struct Parts {
    pub(crate) hca: Arc<Hca>,
    pub(crate) number: Qpn,
    /// Its protection domain; XRC targets have none.
    pub(crate) domain: Option<Handle>,
    /// UD.
    pub(crate) is_datagram: bool,
    pub(crate) signals_all: bool,
    pub(crate) events: Arc<EventSource>,
    /// Of a target that was opened, not made.
    pub(crate) registration: Option<TargetRegistration>,
    /// Of the `ibv_wr_*` calls, if the queue pair was made for them.
    pub(crate) series: Option<Box<Turn<Series>>>,
    /// What a call of a vendor gives of it.
    pub(crate) vendor: OnceLock<Box<VendorQp>>,
    /// The port of a bond that the program has chosen for it; 0: none.
    pub(crate) lag_port: AtomicU8,
    /// The service of a vendor's own that it is of.
    pub(crate) own: Option<OwnService>,
    pub(crate) _domain_use: Option<Use>,
    /// Of the table over which its frames are spread.
    pub(crate) _table_use: Option<Use>,
}

/// What programs set more of a request by, beside `ibv_qp_ex`.
pub(crate) enum VendorQp {
    Efa(efadv_qp),
    Mlx5(Mlx5Qp),
}

/// That of mlx5.
#[repr(C)]
pub(crate) struct Mlx5Qp {
    c: mlx5dv_qp_ex,
    /// The queue pair that it is of.
    qp: *mut ibv_qp,
}

// SAFETY: nothing in it changes once it is made, and its pointers are followed by calls only.
unsafe impl Send for VendorQp {}
// SAFETY: as above.
unsafe impl Sync for VendorQp {}

impl Mlx5Qp {
    /// The queue pair of what a program got.
    pub(crate) fn queue_pair_of<'a>(mlx5: In<'a, mlx5dv_qp_ex>) -> Option<Trusted<'a, ibv_qp>> {
        let c: *const mlx5dv_qp_ex = mlx5.optional()?;
        // SAFETY: the program passes on what `Qp::mlx5` gave it, which is the first field of an `Mlx5Qp`, and
        // the queue pair lives as long as that does.
        Some(unsafe { Trusted::new((*c.cast::<Mlx5Qp>()).qp) })
    }
}

// SAFETY: the first field begins with the C structure.
unsafe impl Held for Qp {
    type C = ibv_qp;
}

impl Listed for Qp {
    const KIND: &'static str = "queue pair";

    fn identity(c: &ibv_qp) -> Identity {
        Identity::new(c.context, c.handle)
    }
}

impl OfProcess for Qp {
    #[inline]
    fn generation(&self) -> Generation {
        self.generation
    }
}

impl Qp {
    pub(crate) fn new(c: ibv_qp_ex, parts: Parts) -> Qp {
        Qp { c: Shown::new(c), generation: Generation::own(), parts }
    }

    /// For the gate: a call is about this queue pair.
    #[inline]
    pub(crate) fn about(qp: *const ibv_qp) -> About {
        About::queue_pair(qp, |address| {
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

    /// It was made by a vendor's call (`IBV_QPT_DRIVER`).
    pub(crate) fn is_of_vendor(&self) -> bool {
        shown!(self.c, qp_base.qp_type) == 0xff
    }

    /// `IBV_QPT_*`.
    pub(crate) fn verbs_type(&self) -> u32 {
        shown!(self.c, qp_base.qp_type)
    }

    /// UD.
    #[inline]
    pub(crate) const fn is_datagram(&self) -> bool {
        self.parts.is_datagram
    }

    /// What its asynchronous events are about.
    pub(crate) fn events(&self) -> &EventSource {
        &self.parts.events
    }

    /// Of the thread that puts requests together by the `ibv_wr_*` calls.
    #[inline]
    pub(crate) fn series(&self) -> Option<&Turn<Series>> {
        self.parts.series.as_deref()
    }

    /// What programs of EFA set more of a request by; `make` makes it at the first call.
    pub(crate) fn efa(&self, make: impl FnOnce() -> efadv_qp) -> *mut efadv_qp {
        match &**self.parts.vendor.get_or_init(|| Box::new(VendorQp::Efa(make()))) {
            VendorQp::Efa(c) => ptr::from_ref(c).cast_mut(),
            VendorQp::Mlx5(_) => ptr::null_mut(),
        }
    }

    /// The same for mlx5. `qp`: what the program calls this queue pair.
    pub(crate) fn mlx5(&self, qp: *mut ibv_qp, make: impl FnOnce() -> mlx5dv_qp_ex) -> *mut mlx5dv_qp_ex {
        let new = || Box::new(VendorQp::Mlx5(Mlx5Qp { c: make(), qp }));
        match &**self.parts.vendor.get_or_init(new) {
            VendorQp::Mlx5(mlx5) => ptr::from_ref(mlx5).cast_mut().cast(),
            VendorQp::Efa(_) => ptr::null_mut(),
        }
    }

    /// The service of a vendor's own that it is of.
    pub(crate) const fn own_service(&self) -> Option<OwnService> {
        self.parts.own
    }

    /// The port of a bond of `ports` ports that it uses: the program's choice, or one by its number.
    pub(crate) fn lag_port(&self, ports: u8) -> u8 {
        match self.parts.lag_port.load(Ordering::Relaxed) {
            0 => 1 + (self.number().value() % u32::from(ports.max(1))) as u8,
            chosen => chosen,
        }
    }

    /// The program chooses a port of a bond for it.
    pub(crate) fn choose_lag_port(&self, port: u8) {
        self.parts.lag_port.store(port, Ordering::Relaxed);
    }

    /// Shows the number of a target of DC, which has one only from RTR on.
    pub(crate) fn show_number(&self) {
        show!(self.c, qp_base.qp_num = self.number().value());
    }

    /// Its protection domain; XRC targets have none.
    #[inline]
    pub(crate) const fn domain(&self) -> Option<Handle> {
        self.parts.domain
    }

    /// Of a target that was opened, not made.
    pub(crate) const fn registration(&self) -> Option<TargetRegistration> {
        self.parts.registration
    }

    /// Its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(self.context_pointer())
    }

    /// The program's pointer to its context.
    pub(crate) fn context_pointer(&self) -> *mut ibv_context {
        shown!(self.c, qp_base.context)
    }

    /// `wr_id` and `wr_flags`, which programs set before an `ibv_wr_*` call.
    #[inline]
    pub(crate) fn next_request(&self) -> (u64, u32) {
        (shown!(self.c, wr_id), shown!(self.c, wr_flags))
    }

    /// Shows a state.
    pub(crate) fn show_state(&self, state: u32) {
        show!(self.c, qp_base.state = state);
    }

    /// What it was made with, and the capacity that it got.
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

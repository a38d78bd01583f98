//! Binding memory windows, and the key that a window's structure shows.
//!
//! A window shows its new key as soon as a bind is posted: programs give it to their peers at once. A bind
//! that is refused or flushed changes no key, and the program learns of it from a completion. When such a
//! completion is polled, the windows with binds on its queue pair show again what the device has.

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pumice_device::ground::table::Handle;
use pumice_device::hca::Hca;
use pumice_transport::types::{Access, SendFlags, SendOpcode, SendRequest, WindowBind};

use crate::calls::memory::{Mw, lkey_or_zero};
use crate::calls::queue_pair::Qp;
use crate::ground::abi::{ibv_context, ibv_mw, ibv_mw_bind, ibv_mw_bind_info, ibv_qp};
use crate::ground::errno::{Errno, INVALID};
use crate::ground::handles::held;
use crate::ground::outcome::status;

const TYPE_1: u32 = 1;
pub(crate) const TYPE_2: u32 = 2;

/// The low byte of a key, which is the program's in windows of type 2; the rest is the device's.
const KEY_PART: u32 = 0xff;

/// A bind that was posted; whether it was executed is not known here.
struct Pending {
    qpn: u32,
    window: Handle,
    new_rkey: u32,
    hca: *const Hca,
    /// The structure of the window, which lives: freeing the window removes this.
    shown: *mut ibv_mw,
}

// SAFETY: the pointers are used under the lock only, and both targets outlive the entry.
unsafe impl Send for Pending {}

static PENDING: Mutex<Vec<Pending>> = Mutex::new(Vec::new());
/// How many there are, so that polling need not take the lock to find none.
static PENDING_COUNT: AtomicUsize = AtomicUsize::new(0);

fn pending() -> MutexGuard<'static, Vec<Pending>> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pending {
    /// The key that the device has for the window now.
    fn key(&self) -> Option<u32> {
        // SAFETY: the context keeps the HCA open, and outlives its windows.
        unsafe { &*self.hca }.window_key(self.window)
    }
}

/// Keeps those entries for which `keep` says so.
fn retain(keep: impl FnMut(&Pending) -> bool) {
    let mut all = pending();
    all.retain(keep);
    PENDING_COUNT.store(all.len(), Ordering::Release);
}

/// A bind is about to be posted: the window shows its new key.
///
/// # Safety
/// `mw` is a live window.
pub(crate) unsafe fn show_posted(qp: &Qp, mw: *mut ibv_mw, bind: &WindowBind) {
    // SAFETY: the caller's promise.
    let Ok(window) = (unsafe { held::<Mw>(mw) }) else { return };
    // SAFETY: a field of our own structure.
    unsafe { (*mw).rkey = bind.new_rkey };
    // A window needs one entry, and binds that were executed are of no more interest.
    retain(|entry| entry.shown != mw && entry.key() != Some(entry.new_rkey));
    let mut all = pending();
    all.push(Pending {
        qpn: qp.number().value(),
        window: window.handle(),
        new_rkey: bind.new_rkey,
        hca: qp.hca(),
        shown: mw,
    });
    PENDING_COUNT.store(all.len(), Ordering::Release);
}

/// A completion with an error of a queue pair was polled: all its binds were executed, refused or flushed.
#[cold]
pub(crate) fn show_refused(qpn: u32) {
    show_again(|entry| entry.qpn == qpn);
}

/// A bind that [`show_posted`] was called for was not posted.
#[cold]
pub(crate) fn show_not_posted(mw: *mut ibv_mw) {
    show_again(|entry| entry.shown == mw);
}

/// Windows show again what the device has.
fn show_again(concerns: impl Fn(&Pending) -> bool) {
    if PENDING_COUNT.load(Ordering::Acquire) == 0 {
        return;
    }
    retain(|entry| {
        if !concerns(entry) {
            return true;
        }
        if let Some(key) = entry.key() {
            // SAFETY: the window lives, or its entry would be gone.
            unsafe { (*entry.shown).rkey = key };
        }
        false
    });
}

/// A window is about to be freed.
pub(crate) fn forget(mw: *mut ibv_mw) {
    if PENDING_COUNT.load(Ordering::Acquire) != 0 {
        retain(|entry| entry.shown != mw);
    }
}

/// A context is about to be closed, with all its windows.
pub(crate) fn forget_all_of(context: *mut ibv_context) {
    if PENDING_COUNT.load(Ordering::Acquire) != 0 {
        // SAFETY: the window lives until its context is closed.
        retain(|entry| unsafe { (*entry.shown).context } != context);
    }
}

/// What the device is to bind. Of the new key of a window of type 2 only the low byte is the program's, as
/// with adapters. Whether the protection domains agree is found out when the bind is executed.
///
/// # Safety
/// `mw` is null or live, and so is the region in `info`.
///
/// # Errors
/// EINVAL: no window, one of another type, no region, or rights that windows cannot give.
pub(crate) unsafe fn window_bind(
    mw: *mut ibv_mw,
    new_rkey: u32,
    info: &ibv_mw_bind_info,
    kind: u32,
) -> Result<WindowBind, Errno> {
    // SAFETY: the caller's promise.
    let window = unsafe { held::<Mw>(mw) }?;
    // SAFETY: a live structure of ours.
    let window = unsafe { &*window.as_ptr() };
    // Programs ask for LOCAL_WRITE too, which windows do not give: keys of windows are for peers.
    let access = Access::from_bits(info.mw_access_flags).ok_or(INVALID)? - Access::LOCAL_WRITE;
    if window.r#type != kind || (info.mr.is_null() && info.length > 0) {
        return Err(INVALID.because(|| "the window is of another type, or has no region".to_owned()));
    }
    Ok(WindowBind {
        window_rkey: window.rkey,
        new_rkey: window.rkey & !KEY_PART | new_rkey & KEY_PART,
        // SAFETY: the caller's promise.
        region_lkey: unsafe { lkey_or_zero(info.mr) },
        address: info.addr,
        length: info.length,
        access,
    })
}

/// Binds a window of type 1; its next key is ours to choose. EPERM: the region is of another protection
/// domain than the window.
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    mw_bind: *mut ibv_mw_bind,
) -> c_int {
    status(|| {
        // SAFETY: null or live; null or the caller's structure.
        let (qp, window, bind) =
            unsafe { (held::<Qp>(qp)?, held::<Mw>(mw)?, mw_bind.as_ref().ok_or(INVALID)?) };
        let info = &bind.bind_info;
        // SAFETY: fields of our own structures; the region is null or live.
        let (shown, region) = unsafe { (&*window.as_ptr(), info.mr.as_ref()) };
        if region.is_some_and(|region| region.pd != shown.pd) {
            let reason = || "the region is of another protection domain than the window".to_owned();
            return Err(Errno(libc::EPERM).because(reason));
        }
        let mut request = SendRequest::new(bind.wr_id, SendOpcode::BindWindow);
        request.flags = SendFlags::from_bits_truncate(bind.send_flags);
        request.faults_complete = true;
        // SAFETY: null or live.
        let wanted = unsafe { window_bind(mw, shown.rkey.wrapping_add(1), info, TYPE_1) }?;
        request.bind = Some(wanted);
        // SAFETY: a live window.
        unsafe { show_posted(qp, mw, &wanted) };
        let posted = qp.hca().post_send(qp.number(), &request);
        Ok(posted.inspect_err(|_| show_not_posted(mw))?)
    })
}

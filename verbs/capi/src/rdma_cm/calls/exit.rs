//! The end of a process that has not disconnected: its peers are notified, as by a kernel when a process with
//! connections has ended. If a process is killed, other processes of its address or the peers' timers notice
//! it.

use std::time::Duration;

use crate::entry::outcome::value;
use crate::gate::finish;
use crate::objects::capture::flush_captures;
use crate::rdma_cm::id::shared::if_open;

/// Longest wait for the lock of the adapter. A signal handler that ends the process may have interrupted the
/// thread that holds it.
const LIMIT: Duration = Duration::from_millis(100);

/// Function that runs when the process calls `exit`, after all handlers of `atexit`: they may still
/// disconnect, and wait for it.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = disconnect_all;

extern "C" fn disconnect_all() {
    value((), || {
        if let Some(shared) = if_open() {
            for device in shared {
                let _ = device.hca().cm_leave(LIMIT);
            }
            flush_captures();
        }
    });
    finish();
}

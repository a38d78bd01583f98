//! The end of a process that has not disconnected: its peers are told, as a kernel does that finds the connections of
//! a process that has ended. For a process that is killed, others of its address or the peers' timers find it out.

use std::time::Duration;

use super::shared::if_open;
use crate::ground::outcome::value;
use crate::objects::capture::flush_capture;

/// How long the adapter is waited for. A signal handler that ends the process may have interrupted the thread that
/// has it.
const PATIENCE: Duration = Duration::from_millis(100);

/// Runs when the process calls `exit`, after all handlers of `atexit`: they may still disconnect, and wait for it.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = say_goodbye;

extern "C" fn say_goodbye() {
    value((), || {
        if let Some(shared) = if_open() {
            let _ = shared.hca().cm_leave(PATIENCE);
            flush_capture();
        }
    });
}

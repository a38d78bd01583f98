//! `pumice stat --listen`: metrics over HTTP, on loopback, for programs of the same user.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use peer::{overflow_user, user_of};
use request::{HttpRefusal, PATH};

use super::metrics::{MetricsFormat, scrape, write};
use crate::observe::{Interrupt, SnapshotScope};
use crate::outcome::{CommandError, CommandResult, Outcome};

/// A number of slots.
#[derive(Debug, Clone)]
pub(super) struct ConnectionSlots {
    free: Arc<AtomicU32>,
}

/// A slot; dropping it makes it free again.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    free: Arc<AtomicU32>,
}

impl ConnectionSlots {
    pub(super) fn new(count: u32) -> ConnectionSlots {
        ConnectionSlots { free: Arc::new(AtomicU32::new(count)) }
    }

    /// Takes a slot, if one is free.
    pub(super) fn take(&self) -> Option<ConnectionSlot> {
        let less = |free: u32| free.checked_sub(1);
        let taken = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        taken.is_ok().then(|| ConnectionSlot { free: Arc::clone(&self.free) })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.free.fetch_add(1, Ordering::Relaxed);
    }
}

mod connection;
mod peer;
mod request;

/// Maximum number of connections that are answered at once, and of those that are refused at once.
const MAX_CONNECTIONS: u32 = 8;
const MAX_REFUSED: u32 = 4;
/// Time for which processes are awaited at each scrape: a stopped process delays the others.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Interval at which the end is checked without a signal that wakes the thread.
const TICK: Duration = Duration::from_secs(60);
/// Pause if the system has no descriptor for another connection.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The service: what is served, and to which users.
#[derive(Debug)]
pub(super) struct MetricsService {
    /// The UDP port that the processes share.
    pub(super) port: u16,
    pub(super) registry: Option<PathBuf>,
    pub(super) pid: Option<u32>,
    /// Maximum number of queue pairs with series of their own.
    pub(super) most_qps: Option<usize>,
    /// Users who may connect besides this one.
    pub(super) allowed: Vec<u32>,
    /// Lock that serializes scrapes, so that many clients ask the processes no more often than one.
    pub(super) turn: Mutex<()>,
}

/// Serves until a signal arrives.
pub(super) fn serve(address: SocketAddr, service: MetricsService, out: &mut dyn Write) -> CommandResult {
    let interrupt = Interrupt::new()
        .map_err(|error| CommandError::Failed(format!("signals cannot be waited for: {error}")))?;
    let listener = TcpListener::bind(address)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|error| CommandError::Failed(format!("nothing can listen on {address}: {error}")))?;
    writeln!(out, "metrics at http://{}{PATH}", listener.local_addr()?)?;
    out.flush()?;
    let service = Arc::new(service);
    let (served, refused) = (ConnectionSlots::new(MAX_CONNECTIONS), ConnectionSlots::new(MAX_REFUSED));
    while !interrupt.wait_beside(&listener, TICK).map_err(CommandError::Output)? {
        match listener.accept() {
            Ok((stream, from)) => take(stream, from, &service, &served, &refused),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // The client has gone already, or the system has no descriptor now.
            Err(_) => {
                if interrupt.wait(RETRY_INTERVAL).map_err(CommandError::Output)? {
                    break;
                }
            }
        }
    }
    Ok(Outcome::Good)
}

/// Serves a connection in a thread of its own, if a slot is free. Refused users have other slots, so that
/// they take none from this user.
fn take(
    mut stream: TcpStream,
    from: SocketAddr,
    service: &Arc<MetricsService>,
    served: &ConnectionSlots,
    refused: &ConnectionSlots,
) {
    let refusal = service.refusal(&stream, from);
    let Some(slot) = (if refusal.is_some() { refused } else { served }).take() else {
        let _ = connection::send_refusal(
            &mut stream,
            &HttpRefusal::new(503, "there are too many connections: try again"),
        );
        return;
    };
    let service = Arc::clone(service);
    // Without a thread the connection ends.
    let _ = thread::Builder::new().spawn(move || {
        match refusal {
            Some(refusal) => connection::refuse(stream, &refusal),
            None => connection::answer(stream, |format| service.metrics(format)),
        }
        drop(slot);
    });
}

impl MetricsService {
    /// Returns the reason why the user at the other end is refused.
    fn refusal(&self, stream: &TcpStream, from: SocketAddr) -> Option<HttpRefusal> {
        let user = stream.local_addr().and_then(|own| user_of(from, own));
        let own = rustix::process::geteuid().as_raw();
        match user {
            Ok(Some(user)) if self.allowed.contains(&user) => None,
            Ok(Some(user)) if user == own && user != overflow_user() => None,
            Ok(Some(user)) => Some(HttpRefusal::new(
                403,
                format!(
                    "this is for user {own}, and you are user {user}: --allow-user {user} would let you in"
                ),
            )),
            Ok(None) => Some(HttpRefusal::new(403, "the kernel does not tell whose connection this is")),
            Err(error) => {
                Some(HttpRefusal::new(403, format!("/proc does not tell whose connection this is: {error}")))
            }
        }
    }

    fn metrics(&self, format: MetricsFormat) -> Result<String, String> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let MetricsService { port, registry, pid, .. } = self;
        let scope =
            SnapshotScope { port: *port, registry: registry.as_deref(), pid: *pid, patience: TIMEOUT };
        Ok(write(&scrape(&scope.look()?, self.most_qps), format))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_as_were_made() {
        let slots = ConnectionSlots::new(2);
        let (one, other) = (slots.take(), slots.take());
        assert!(one.is_some() && other.is_some() && slots.take().is_none());
        drop(one);
        assert!(slots.take().is_some());
    }
}

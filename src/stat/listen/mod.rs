//! `pumice stat --listen`: metrics over HTTP, on loopback, for programs of the same user.

mod connection;
mod peer;
mod request;
mod slots;

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::metrics::{Format, scrape, write};
use crate::observe::{Interrupt, LookScope};
use crate::outcome::{CommandError, CommandResult, Outcome};
use peer::{overflow_user, user_of};
use request::{PATH, Refusal};
use slots::Slots;

/// Connections that are answered at once, and those that are refused at once.
const MAX_CONNECTIONS: u32 = 8;
const MAX_REFUSED: u32 = 4;
/// How long processes are waited for at each scrape: one that is stopped delays the others.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often the end is looked for without a signal that wakes.
const TICK: Duration = Duration::from_secs(60);
/// How long to wait if the system has no descriptor for another connection.
const PAUSE: Duration = Duration::from_millis(100);

/// What is served, and to whom.
#[derive(Debug)]
pub(super) struct Service {
    /// The UDP port that the processes share.
    pub(super) port: u16,
    pub(super) registry: Option<PathBuf>,
    pub(super) pid: Option<u32>,
    /// Queue pairs with series of their own.
    pub(super) most_qps: Option<usize>,
    /// Users who may ask besides this one.
    pub(super) allowed: Vec<u32>,
    /// Of two scrapes at once one waits, so that many of them ask the processes no more often than one.
    pub(super) turn: Mutex<()>,
}

/// Serves until a signal comes.
pub(super) fn serve(address: SocketAddr, service: Service, out: &mut dyn Write) -> CommandResult {
    let interrupt = Interrupt::new()
        .map_err(|error| CommandError::Failed(format!("signals cannot be waited for: {error}")))?;
    let listener = TcpListener::bind(address)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|error| CommandError::Failed(format!("nothing can listen on {address}: {error}")))?;
    writeln!(out, "metrics at http://{}{PATH}", listener.local_addr()?)?;
    out.flush()?;
    let service = Arc::new(service);
    let (served, refused) = (Slots::new(MAX_CONNECTIONS), Slots::new(MAX_REFUSED));
    while !interrupt.wait_beside(&listener, TICK).map_err(CommandError::Output)? {
        match listener.accept() {
            Ok((stream, from)) => take(stream, from, &service, &served, &refused),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // The client has gone already, or the system has no descriptor now.
            Err(_) => {
                if interrupt.wait(PAUSE).map_err(CommandError::Output)? {
                    break;
                }
            }
        }
    }
    Ok(Outcome::Good)
}

/// Gives a connection to a thread of its own, if there is a slot for it. The slots of users who are refused
/// are others, so that they take none from this user.
fn take(mut stream: TcpStream, from: SocketAddr, service: &Arc<Service>, served: &Slots, refused: &Slots) {
    let refusal = service.refusal(&stream, from);
    let Some(slot) = (if refusal.is_some() { refused } else { served }).take() else {
        let _ = connection::say(&mut stream, &Refusal::new(503, "there are too many connections: try again"));
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

impl Service {
    /// Why the user at the other end gets nothing.
    fn refusal(&self, stream: &TcpStream, from: SocketAddr) -> Option<Refusal> {
        let user = stream.local_addr().and_then(|own| user_of(from, own));
        let own = rustix::process::geteuid().as_raw();
        match user {
            Ok(Some(user)) if self.allowed.contains(&user) => None,
            Ok(Some(user)) if user == own && user != overflow_user() => None,
            Ok(Some(user)) => Some(Refusal::new(
                403,
                format!(
                    "this is for user {own}, and you are user {user}: --allow-user {user} would let you in"
                ),
            )),
            Ok(None) => Some(Refusal::new(403, "the kernel does not tell whose connection this is")),
            Err(error) => {
                Some(Refusal::new(403, format!("/proc does not tell whose connection this is: {error}")))
            }
        }
    }

    fn metrics(&self, format: Format) -> Result<String, String> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let Service { port, registry, pid, .. } = self;
        let scope = LookScope { port: *port, registry: registry.as_deref(), pid: *pid, patience: PATIENCE };
        Ok(write(&scrape(&scope.look()?, self.most_qps), format))
    }
}

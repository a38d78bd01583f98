//! The serving end: does what clients ask, one after the other.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use pumice_device::port::RawWait;

use super::control::{self, Contents, Control, Reply, Request, Round};
use super::endpoint::Endpoint;
use super::plan::{Operation, Plan};
use super::process;
use super::raw::RawEnd;
use super::receiver::Receiver;

/// How to serve.
#[derive(Debug, Clone, Default)]
pub(crate) struct Service {
    /// Of the device; by default the one by which a client came.
    pub(crate) address: Option<IpAddr>,
    /// Core of the thread that works.
    pub(crate) core: Option<usize>,
    pub(crate) once: bool,
}

/// Serves the clients of a listener; returns after the first one if `once`. `note` is told about clients
/// that could not be served.
///
/// # Errors
/// A sentence: the first client could not be served, if `once`.
pub(crate) fn serve(
    listener: &TcpListener,
    service: &Service,
    note: &mut dyn FnMut(&str),
) -> Result<(), String> {
    loop {
        let accepted = listener.accept().map_err(|error| format!("no client can be accepted: {error}"))?;
        let outcome = serve_one(accepted.0, service);
        if service.once {
            return outcome;
        }
        if let Err(sentence) = outcome {
            note(&sentence);
        }
    }
}

fn serve_one(stream: TcpStream, service: &Service) -> Result<(), String> {
    let mut control =
        Control::new(stream).map_err(|error| format!("the client's connection failed: {error}"))?;
    let mut session = None;
    while let Some(request) = control.receive()? {
        let answer = match request {
            Request::Open { version, plan } => {
                open(version, plan, service, &control).map(|(opened, reply)| {
                    session = Some(opened);
                    reply
                })
            }
            other => match session.as_mut() {
                Some(session) => session.handle(other, &mut control),
                None => Err("the client asks for things before it opens".to_owned()),
            },
        };
        match answer {
            Ok(reply) => control.send(&reply)?,
            Err(sentence) => {
                control.send(&Reply::Refused(sentence.clone()))?;
                return Err(sentence);
            }
        }
    }
    Ok(())
}

fn open(version: u32, plan: Plan, service: &Service, control: &Control) -> Result<(Session, Reply), String> {
    if version != control::VERSION {
        let own = control::VERSION;
        return Err(format!("the client speaks version {version}, this server {own}: use the same pumice"));
    }
    plan.check()?;
    let local = control.addresses().map_err(|error| error.to_string())?.0;
    let address = service.address.unwrap_or(local);
    let end = Endpoint::open(&plan, address, None)?;
    // After the device has started its background thread: that one goes where there is room, as it does in
    // any application.
    process::pin(service.core);
    let raw = if plan.raw { Some(RawEnd::open(address)?) } else { None };
    let raw_address = raw.as_ref().map(RawEnd::address).transpose()?;
    let reply = Reply::Opened { end: end.info(), raw: raw_address };
    Ok((Session { plan, end, raw }, reply))
}

struct Session {
    plan: Plan,
    end: Endpoint,
    raw: Option<RawEnd>,
}

impl Session {
    fn handle(&mut self, request: Request, control: &mut Control) -> Result<Reply, String> {
        match request {
            Request::Open { .. } => Err("the client opened twice".to_owned()),
            Request::Connect { end } => self.end.connect(&end).map(|()| Reply::Connected),
            Request::Start(round) => self.round(round, control),
            Request::Stop { .. } => Err("the client stops what it did not start".to_owned()),
            Request::Check { tags } => {
                self.end.settle(self.plan.service == super::plan::Service::Rc)?;
                for (slot, tag) in tags.iter().enumerate() {
                    self.end.check_target(slot, *tag)?;
                }
                Ok(Reply::Checked)
            }
            Request::CheckCounters { values } => self.end.check_counters(&values).map(|()| Reply::Checked),
            Request::Fill { tags } => {
                for (slot, tag) in tags.iter().enumerate() {
                    self.end.fill_target(slot, *tag)?;
                }
                Ok(Reply::Filled)
            }
            Request::Count => {
                self.end.settle(false)?;
                Ok(Reply::Counted(self.end.traffic()))
            }
        }
    }

    fn round(&mut self, round: Round, control: &mut Control) -> Result<Reply, String> {
        if let Round::Ours { contents: Contents::Same { tag } } = round
            && self.plan.verify
            && self.plan.operation == Operation::Send
        {
            // Answers of timed ping-pongs.
            self.end.fill_sends(tag)?;
        }
        if !matches!(round, Round::Ours { .. }) {
            // Before the client begins: what comes after that is the round's.
            self.raw()?.drain()?;
        }
        control.send(&Reply::Started)?;
        let served = match round {
            Round::Ours { contents } => {
                let mut receiver = Receiver::new(&self.plan, contents);
                receiver.run(&mut self.end, control)?;
                let sent = stopped(control)?;
                receiver.finish(&mut self.end, sent)?
            }
            Round::RawStream { client, credit_bytes } => {
                let served = self.raw()?.sink(client, credit_bytes, control)?;
                stopped(control)?;
                served
            }
            Round::RawEcho { client, block } => {
                let wait = if block { RawWait::Block } else { RawWait::Spin };
                let served = self.raw()?.echo(client, wait, control)?;
                stopped(control)?;
                served
            }
        };
        Ok(Reply::Stopped(served))
    }

    fn raw(&mut self) -> Result<&mut RawEnd, String> {
        self.raw.as_mut().ok_or_else(|| "the client did not ask for plain UDP when it opened".to_owned())
    }
}

/// Reads the word that ended a round.
fn stopped(control: &mut Control) -> Result<u64, String> {
    match control.receive()? {
        Some(Request::Stop { sent }) => Ok(sent),
        Some(_) => Err("the client asks for things during a round".to_owned()),
        None => Err("the client went away during a round".to_owned()),
    }
}

/// Listens on a TCP port of all addresses, or of one.
///
/// # Errors
/// A sentence.
pub(crate) fn listen(at: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(at).map_err(|error| {
        format!("TCP port {} cannot be listened on: {error}; choose another with --oob-port", at.port())
    })
}

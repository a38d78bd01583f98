//! The serving end: handles clients' requests, one after the other.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use pumice_device::port::RawWait;

use crate::control::{ClientRequest, Contents, Control, ReceiveTotals, Reply, Round, VERSION};
use crate::endpoint::Endpoint;
use crate::error::{PerfError, Result};
use crate::machine;
use crate::plan::{Operation, Plan, Service};
use crate::raw::RawEndpoint;
use crate::rounds::receiver::RoundReceiver;

/// Options of a server.
#[derive(Debug, Clone, Copy)]
pub struct ServerOptions {
    /// Address of the device; by default the one through which a client came.
    pub address: Option<IpAddr>,
    /// Core of the thread that serves, from 0; by default any.
    pub core: Option<usize>,
    /// Text with which clients get the reason of a refusal; by default that of the error.
    pub wording: fn(&PerfError) -> String,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions { address: None, core: None, wording: PerfError::to_string }
    }
}

/// Serves clients, which choose what is measured.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    options: ServerOptions,
}

impl Server {
    /// Listens on a TCP port, for instance [`DEFAULT_PORT`](crate::DEFAULT_PORT); for port 0 the system
    /// chooses one.
    ///
    /// # Errors
    /// Fails with the errors of [`TcpListener::bind`].
    pub fn bind(at: SocketAddr, options: ServerOptions) -> io::Result<Server> {
        Ok(Server { listener: TcpListener::bind(at)?, options })
    }

    /// Returns the address at which it listens.
    ///
    /// # Errors
    /// Fails with the errors of [`TcpListener::local_addr`].
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Waits for a client and serves it until it goes away. Each client gets a device of its own.
    ///
    /// # Errors
    /// Fails if the client could not be served; it got the reason.
    pub fn serve_one(&self) -> Result<()> {
        serve(self.accept()?, &self.options)
    }

    /// Serves clients one after the other. `failed` gets the reason if one could not be served. Returns only
    /// when no client can be accepted any more.
    pub fn serve(&self, failed: &mut dyn FnMut(&PerfError)) -> PerfError {
        loop {
            match self.accept() {
                Ok(stream) => {
                    if let Err(error) = serve(stream, &self.options) {
                        failed(&error);
                    }
                }
                Err(error) => return error,
            }
        }
    }

    fn accept(&self) -> Result<TcpStream> {
        let accepted = self.listener.accept();
        let (stream, _) =
            accepted.map_err(|error| PerfError::Control(format!("no client can be accepted: {error}")))?;
        Ok(stream)
    }
}

fn serve(stream: TcpStream, options: &ServerOptions) -> Result<()> {
    let mut control = Control::new(stream)
        .map_err(|error| PerfError::Control(format!("the client's connection failed: {error}")))?;
    let mut client = None;
    while let Some(request) = control.receive()? {
        let answer = match request {
            ClientRequest::Open { version, plan } => {
                open(version, plan, options, &control).map(|(opened, reply)| {
                    client = Some(opened);
                    reply
                })
            }
            other => match client.as_mut() {
                Some(client) => client.handle(other, &mut control),
                None => Err(unexpected_request("the client asks for things before it opens")),
            },
        };
        match answer {
            Ok(reply) => control.send(&reply)?,
            Err(error) => {
                control.send(&Reply::Refused((options.wording)(&error)))?;
                return Err(error);
            }
        }
    }
    Ok(())
}

fn open(
    version: u32,
    plan: Plan,
    options: &ServerOptions,
    control: &Control,
) -> Result<(ServedClient, Reply)> {
    if version != VERSION {
        return Err(PerfError::Control(format!(
            "the client speaks version {version}, this server {VERSION}: use the same pumice"
        )));
    }
    plan.check()?;
    let local = control.addresses().map_err(|error| PerfError::Control(error.to_string()))?.0;
    let address = options.address.unwrap_or(local);
    let end = Endpoint::open(&plan, address, None)?;
    // The thread is pinned after the device has started its background thread, which runs where there is
    // room, as in any application.
    machine::pin(options.core);
    let raw = if plan.raw { Some(RawEndpoint::open(address)?) } else { None };
    let raw_address = raw.as_ref().map(RawEndpoint::address).transpose()?;
    let reply = Reply::Opened { end: end.info(), raw: raw_address };
    Ok((ServedClient { plan, end, raw }, reply))
}

/// State of the server for one client.
struct ServedClient {
    plan: Plan,
    end: Endpoint,
    raw: Option<RawEndpoint>,
}

impl ServedClient {
    fn handle(&mut self, request: ClientRequest, control: &mut Control) -> Result<Reply> {
        match request {
            ClientRequest::Open { .. } => Err(unexpected_request("the client opened twice")),
            ClientRequest::Connect { end } => self.end.connect(&end).map(|()| Reply::Connected),
            ClientRequest::Start(round) => self.round(round, control),
            ClientRequest::Stop { .. } => Err(unexpected_request("the client stops what it did not start")),
            ClientRequest::Check { tags } => {
                self.end.settle(self.plan.service == Service::Rc)?;
                for (buffer, tag) in tags.iter().enumerate() {
                    self.end.check_target(buffer, *tag)?;
                }
                Ok(Reply::Checked)
            }
            ClientRequest::CheckCounters { values } => {
                self.end.check_counters(&values).map(|()| Reply::Checked)
            }
            ClientRequest::Fill { tags } => {
                for (buffer, tag) in tags.iter().enumerate() {
                    self.end.fill_target(buffer, *tag)?;
                }
                Ok(Reply::Filled)
            }
            ClientRequest::Count => {
                self.end.settle(false)?;
                Ok(Reply::Counted(self.end.traffic()))
            }
        }
    }

    fn round(&mut self, round: Round, control: &mut Control) -> Result<Reply> {
        if let Round::Ours { contents: Contents::Same { tag } } = round
            && self.plan.verify
            && self.plan.operation == Operation::Send
        {
            // These are the answers of timed ping-pongs.
            self.end.fill_sends(tag)?;
        }
        if !matches!(round, Round::Ours { .. }) {
            // This happens before the client begins: datagrams after it belong to the round.
            self.raw()?.drain()?;
        }
        control.send(&Reply::Started)?;
        self.take_part(round, control).map(Reply::Stopped)
    }

    fn take_part(&mut self, round: Round, control: &mut Control) -> Result<ReceiveTotals> {
        match round {
            Round::Ours { contents } => {
                let mut receiver = RoundReceiver::new(&self.plan, contents);
                receiver.run(&mut self.end, control)?;
                let sent = stopped(control)?;
                receiver.finish(&mut self.end, sent)
            }
            Round::RawStream { client, credit_bytes } => {
                let served = self.raw()?.sink(client, credit_bytes, control)?;
                stopped(control)?;
                Ok(served)
            }
            Round::RawEcho { client, block } => {
                let wait = if block { RawWait::Block } else { RawWait::Spin };
                let served = self.raw()?.echo(client, wait, control)?;
                stopped(control)?;
                Ok(served)
            }
        }
    }

    fn raw(&mut self) -> Result<&mut RawEndpoint> {
        self.raw
            .as_mut()
            .ok_or_else(|| unexpected_request("the client did not ask for plain UDP when it opened"))
    }
}

/// Reads the message that ended a round; returns how many messages the client has sent.
fn stopped(control: &mut Control) -> Result<u64> {
    match control.receive()? {
        Some(ClientRequest::Stop { sent }) => Ok(sent),
        Some(_) => Err(unexpected_request("the client asks for things during a round")),
        None => Err(unexpected_request("the client went away during a round")),
    }
}

fn unexpected_request(sentence: &str) -> PerfError {
    PerfError::Control(sentence.to_owned())
}

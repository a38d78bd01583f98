//! The serving end: does what clients ask, one after the other.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use pumice_device::port::RawWait;

use crate::control::{ClientRequest, Contents, Control, Reply, Round, Served, VERSION};
use crate::cores;
use crate::endpoint::Endpoint;
use crate::error::{PerfError, Result};
use crate::plan::{Operation, Plan, Service};
use crate::raw::RawEnd;
use crate::rounds::receiver::Receiver;

/// How a server works.
#[derive(Debug, Clone, Copy)]
pub struct ServerOptions {
    /// Address of the device; by default the one by which a client came.
    pub address: Option<IpAddr>,
    /// Core of the thread that serves, from 0; by default any.
    pub core: Option<usize>,
    /// How clients are told why the server refuses; by default in the error's own words.
    pub wording: fn(&PerfError) -> String,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions { address: None, core: None, wording: PerfError::to_string }
    }
}

/// Serves clients; what is measured is their choice.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    options: ServerOptions,
}

impl Server {
    /// Listens on a TCP port, [`DEFAULT_PORT`](crate::DEFAULT_PORT) for instance; port 0 is one of the
    /// system's choice.
    ///
    /// # Errors
    /// Those of [`TcpListener::bind`].
    pub fn bind(at: SocketAddr, options: ServerOptions) -> io::Result<Server> {
        Ok(Server { listener: TcpListener::bind(at)?, options })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// Those of [`TcpListener::local_addr`].
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Waits for a client and serves it until it goes away. Each client gets a device of its own.
    ///
    /// # Errors
    /// The client could not be served; it was told why.
    pub fn serve_one(&self) -> Result<()> {
        serve(self.accept()?, &self.options)
    }

    /// Serves clients one after the other. `failed` is told why one could not be served. Returns only when no
    /// client can be accepted any more.
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
                None => Err(out_of_turn("the client asks for things before it opens")),
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

fn open(version: u32, plan: Plan, options: &ServerOptions, control: &Control) -> Result<(Client, Reply)> {
    if version != VERSION {
        return Err(PerfError::Control(format!(
            "the client speaks version {version}, this server {VERSION}: use the same pumice"
        )));
    }
    plan.check()?;
    let local = control.addresses().map_err(|error| PerfError::Control(error.to_string()))?.0;
    let address = options.address.unwrap_or(local);
    let end = Endpoint::open(&plan, address, None)?;
    // After the device has started its background thread: that one goes where there is room, as it does in
    // any application.
    cores::pin(options.core);
    let raw = if plan.raw { Some(RawEnd::open(address)?) } else { None };
    let raw_address = raw.as_ref().map(RawEnd::address).transpose()?;
    let reply = Reply::Opened { end: end.info(), raw: raw_address };
    Ok((Client { plan, end, raw }, reply))
}

/// What the server has for one client.
struct Client {
    plan: Plan,
    end: Endpoint,
    raw: Option<RawEnd>,
}

impl Client {
    fn handle(&mut self, request: ClientRequest, control: &mut Control) -> Result<Reply> {
        match request {
            ClientRequest::Open { .. } => Err(out_of_turn("the client opened twice")),
            ClientRequest::Connect { end } => self.end.connect(&end).map(|()| Reply::Connected),
            ClientRequest::Start(round) => self.round(round, control),
            ClientRequest::Stop { .. } => Err(out_of_turn("the client stops what it did not start")),
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
            // Answers of timed ping-pongs.
            self.end.fill_sends(tag)?;
        }
        if !matches!(round, Round::Ours { .. }) {
            // Before the client begins: what comes after that is the round's.
            self.raw()?.drain()?;
        }
        control.send(&Reply::Started)?;
        self.take_part(round, control).map(Reply::Stopped)
    }

    fn take_part(&mut self, round: Round, control: &mut Control) -> Result<Served> {
        match round {
            Round::Ours { contents } => {
                let mut receiver = Receiver::new(&self.plan, contents);
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

    fn raw(&mut self) -> Result<&mut RawEnd> {
        self.raw.as_mut().ok_or_else(|| out_of_turn("the client did not ask for plain UDP when it opened"))
    }
}

/// Reads the word that ended a round: how many messages the client has sent.
fn stopped(control: &mut Control) -> Result<u64> {
    match control.receive()? {
        Some(ClientRequest::Stop { sent }) => Ok(sent),
        Some(_) => Err(out_of_turn("the client asks for things during a round")),
        None => Err(out_of_turn("the client went away during a round")),
    }
}

fn out_of_turn(sentence: &str) -> PerfError {
    PerfError::Control(sentence.to_owned())
}

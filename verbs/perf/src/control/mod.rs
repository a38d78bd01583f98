//! The control connection between the two ends of a measurement, out of band.
//!
//! The control connection of two ends, out of band, and its messages.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::endpoint::{EndpointInfo, PacketCounts};
use crate::error::{PerfError, Result};
use crate::pattern::Tag;
use crate::plan::Plan;

/// Version of the message format.
pub(crate) const VERSION: u32 = 1;

/// A request of the client to the server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ClientRequest {
    /// Make queue pairs for this plan.
    Open { version: u32, plan: Plan },
    /// Connect them to the client's queue pairs.
    Connect { end: EndpointInfo },
    /// Take part in a round until [`Stop`](ClientRequest::Stop).
    Start(Round),
    /// End of the round: the client has `sent` messages.
    Stop { sent: u64 },
    /// Check memory that the client wrote: messages in buffers 0.. with these tags.
    Check { tags: Vec<Tag> },
    /// Compare the counters that fetch-and-adds of each queue pair counted.
    CheckCounters { values: Vec<u64> },
    /// Fill memory that the client will read: buffers 0.. with these tags.
    Fill { tags: Vec<Tag> },
    /// Return the counters of the device.
    Count,
}

/// Kind of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Round {
    /// A round of the device's queue pairs.
    Ours { contents: Contents },
    /// Plain UDP: count a stream and give credit for each `credit_bytes` bytes.
    RawStream { client: SocketAddr, credit_bytes: usize },
    /// Plain UDP: send all datagrams back.
    RawEcho { client: SocketAddr, block: bool },
}

/// Contents of the messages of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Contents {
    /// All messages have the same contents.
    Same { tag: Tag },
    /// The message with number k in its immediate data has tag `first + k`.
    Numbered { first: Tag },
}

/// An answer of the server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Opened {
        end: EndpointInfo,
        raw: Option<SocketAddr>,
    },
    Connected,
    Started,
    Stopped(ReceiveTotals),
    Checked,
    Filled,
    Counted(PacketCounts),
    /// The server refuses, with the reason in a sentence.
    Refused(String),
}

/// Messages that the server received in a round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReceiveTotals {
    /// Number of messages that arrived.
    pub(crate) messages: u64,
    /// Time from the first to the last of them, in seconds.
    pub(crate) seconds: f64,
    /// Number of messages whose bytes were all compared.
    pub(crate) checked: u64,
}

/// Longest line in bytes: ten thousand queue pair numbers fit.
const MAX_LINE_BYTES: usize = 1 << 20;
/// Longest time that the other end may take to answer. It is long, because a machine with many more busy
/// processes than processors lets a process run for a small part of the time only.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Time that an end that has failed waits for a message that the other one has failed as well.
const FINAL_ERROR_TIMEOUT: Duration = Duration::from_millis(500);

/// The control connection of one end.
#[derive(Debug)]
pub(crate) struct Control {
    reader: BufReader<TcpStream>,
    line: Vec<u8>,
}

impl Control {
    /// Takes over a TCP connection.
    pub(crate) fn new(stream: TcpStream) -> io::Result<Control> {
        stream.set_nodelay(true)?;
        Ok(Control { reader: BufReader::new(stream), line: Vec::new() })
    }

    /// Returns the addresses of this end and of the other.
    pub(crate) fn addresses(&self) -> io::Result<(IpAddr, IpAddr)> {
        let stream = self.reader.get_ref();
        let plain = |address: SocketAddr| address.ip().to_canonical();
        Ok((plain(stream.local_addr()?), plain(stream.peer_addr()?)))
    }

    /// Sends a message.
    pub(crate) fn send<T: Serialize>(&mut self, message: &T) -> Result<()> {
        let mut line = serde_json::to_vec(message).map_err(|error| PerfError::Control(error.to_string()))?;
        line.push(b'\n');
        self.reader.get_ref().set_nonblocking(false).map_err(lost)?;
        self.reader.get_mut().write_all(&line).map_err(lost)
    }

    /// Waits for a message; `None` if the other end has closed the connection.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        self.reader.get_ref().set_nonblocking(false).map_err(lost)?;
        self.read_line()
    }

    /// Reports whether a message has arrived that [`receive`](Control::receive) would return without waiting
    /// long.
    pub(crate) fn spoken_to(&mut self) -> bool {
        if !self.reader.buffer().is_empty() {
            return true;
        }
        if self.reader.get_ref().set_nonblocking(true).is_err() {
            return true;
        }
        let mut byte = [0];
        match self.reader.get_ref().peek(&mut byte) {
            Ok(_) => true,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    /// Sends a request and waits for the answer.
    ///
    /// # Errors
    /// Fails with a sentence if the other end refused, or is gone.
    pub(crate) fn request_reply(&mut self, request: &ClientRequest) -> Result<Reply> {
        self.send(request)?;
        self.reader.get_ref().set_read_timeout(Some(TIMEOUT)).map_err(lost)?;
        match self.receive()? {
            Some(Reply::Refused(sentence)) => Err(PerfError::Refused(sentence)),
            Some(reply) => Ok(reply),
            None => {
                let sentence = "the other end went away; its own message says why";
                Err(PerfError::Control(sentence.to_owned()))
            }
        }
    }

    /// Returns the reason why the other end has given up, if it sends it within a moment. No request may
    /// follow.
    pub(crate) fn final_error(&mut self) -> Option<String> {
        self.reader.get_ref().set_read_timeout(Some(FINAL_ERROR_TIMEOUT)).ok()?;
        match self.receive() {
            Ok(Some(Reply::Refused(sentence))) => Some(sentence),
            _ => None,
        }
    }

    fn read_line<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        self.line.clear();
        let mut limited = io::Read::take(&mut self.reader, MAX_LINE_BYTES as u64);
        let count = limited.read_until(b'\n', &mut self.line).map_err(lost)?;
        if count == 0 {
            return Ok(None);
        }
        let message = serde_json::from_slice(&self.line);
        let sentence = "the other end is no pumice perf of this version";
        message.map(Some).map_err(|_| PerfError::Control(sentence.to_owned()))
    }
}

/// Returns the error for an answer of the wrong kind.
pub(crate) fn unexpected(reply: &Reply) -> PerfError {
    PerfError::Control(format!("the other end answered out of turn: {reply:?}"))
}

#[allow(clippy::needless_pass_by_value, reason = "fits map_err")]
fn lost(error: io::Error) -> PerfError {
    PerfError::Control(if error.kind() == io::ErrorKind::WouldBlock {
        format!("the other end has not answered for {} s; does its process run?", TIMEOUT.as_secs())
    } else {
        format!("the connection to the other end failed: {error}")
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_conversation() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = listener.local_addr().expect("an address");
        let mut client = Control::new(TcpStream::connect(to).expect("a connection")).expect("options");
        let mut server = Control::new(listener.accept().expect("a connection").0).expect("options");
        assert!(!server.spoken_to());
        client.send(&ClientRequest::Stop { sent: 7 }).expect("sent");
        client.send(&ClientRequest::Count).expect("sent");
        assert!(matches!(server.receive(), Ok(Some(ClientRequest::Stop { sent: 7 }))));
        assert!(server.spoken_to());
        assert!(matches!(server.receive(), Ok(Some(ClientRequest::Count))));
        server.send(&Reply::Refused("no".to_owned())).expect("sent");
        assert_eq!(
            client.request_reply(&ClientRequest::Count).map(|_| ()),
            Err(PerfError::Refused("no".to_owned()))
        );
        server.send(&Reply::Refused("a queue pair failed".to_owned())).expect("sent");
        assert_eq!(client.final_error().as_deref(), Some("a queue pair failed"));
        assert_eq!(client.final_error(), None, "nothing comes any more");
        drop(client);
        assert!(matches!(server.receive(), Ok(Some(ClientRequest::Count))), "what was asked");
        assert!(matches!(server.receive::<ClientRequest>(), Ok(None) | Err(_)));
    }
}

//! The connection by which two ends agree, out of band: JSON lines over TCP.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::endpoint::EndInfo;
use super::pattern::Tag;
use super::plan::Plan;

/// Version of this conversation.
pub(crate) const VERSION: u32 = 1;
/// TCP port of a server by default: perftest's.
pub(crate) const PORT: u16 = 18_515;
/// Longest line: ten thousand queue pair numbers fit.
const MAX_LINE_BYTES: usize = 1 << 20;
/// How long the other end may take to answer. It is long, because a machine with many more busy processes
/// than processors lets a process run for a small part of the time only.
const PATIENCE: Duration = Duration::from_secs(300);

/// How long an end that has failed waits to hear that the other one has failed as well.
const LAST_WORDS_PATIENCE: Duration = Duration::from_millis(500);

/// What the client asks of the server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Make queue pairs for this plan.
    Open { version: u32, plan: Plan },
    /// The client's side of them.
    Connect { end: EndInfo },
    /// Take your part in a round until [`Stop`](Request::Stop).
    Start(Round),
    /// End of the round: the client has `sent` messages.
    Stop { sent: u64 },
    /// Check memory that the client wrote: messages in slots 0.. with these tags.
    Check { tags: Vec<Tag> },
    /// Compare the counters that fetch-and-adds of each queue pair counted.
    CheckCounters { values: Vec<u64> },
    /// Fill memory that the client will read: slots 0.. with these tags.
    Fill { tags: Vec<Tag> },
    /// What the device counted.
    Count,
}

/// What one round is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Round {
    /// Our queue pairs.
    Ours { contents: Contents },
    /// Plain UDP: count a stream and give credit for every so many bytes.
    RawStream { client: SocketAddr, credit_bytes: usize },
    /// Plain UDP: send everything back.
    RawEcho { client: SocketAddr, block: bool },
}

/// What the messages of a round contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Contents {
    /// All the same.
    Same { tag: Tag },
    /// The message with number k in its immediate data has tag `first + k`.
    Numbered { first: Tag },
}

/// What the server answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Opened {
        end: EndInfo,
        raw: Option<SocketAddr>,
    },
    Connected,
    Started,
    Stopped(Served),
    Checked,
    Filled,
    Counted(Traffic),
    /// Why not, in a sentence.
    Refused(String),
}

/// What the server did in a round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Served {
    /// Messages that arrived.
    pub(crate) messages: u64,
    /// From the first to the last of them.
    pub(crate) seconds: f64,
    /// Messages whose bytes were all looked at.
    pub(crate) checked: u64,
}

/// Packets of a device so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Traffic {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) retransmitted: u64,
    pub(crate) timeouts: u64,
    pub(crate) receiver_not_ready: u64,
}

/// One end of the conversation.
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

    /// Addresses of this end and of the other.
    pub(crate) fn addresses(&self) -> io::Result<(IpAddr, IpAddr)> {
        let stream = self.reader.get_ref();
        let plain = |address: SocketAddr| address.ip().to_canonical();
        Ok((plain(stream.local_addr()?), plain(stream.peer_addr()?)))
    }

    /// Says something.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn send<T: Serialize>(&mut self, message: &T) -> Result<(), String> {
        let mut line = serde_json::to_vec(message).map_err(|error| error.to_string())?;
        line.push(b'\n');
        self.reader.get_ref().set_nonblocking(false).map_err(lost)?;
        self.reader.get_mut().write_all(&line).map_err(lost)
    }

    /// Waits for something; `None` when the other end is gone in an orderly way.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> Result<Option<T>, String> {
        self.reader.get_ref().set_nonblocking(false).map_err(lost)?;
        self.read_line()
    }

    /// Whether something was said that [`receive`](Control::receive) would return without waiting long.
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

    /// Asks and waits for the answer.
    ///
    /// # Errors
    /// A sentence: the other end refused, or is gone.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Reply, String> {
        self.send(request)?;
        self.reader.get_ref().set_read_timeout(Some(PATIENCE)).map_err(lost)?;
        match self.receive()? {
            Some(Reply::Refused(sentence)) => Err(sentence),
            Some(reply) => Ok(reply),
            None => Err("the other end went away; its own message says why".to_owned()),
        }
    }

    /// Why the other end has given up, if it says so in a moment. Nothing more is to be asked afterwards.
    pub(crate) fn last_words(&mut self) -> Option<String> {
        self.reader.get_ref().set_read_timeout(Some(LAST_WORDS_PATIENCE)).ok()?;
        match self.receive() {
            Ok(Some(Reply::Refused(sentence))) => Some(sentence),
            _ => None,
        }
    }

    fn read_line<T: DeserializeOwned>(&mut self) -> Result<Option<T>, String> {
        self.line.clear();
        let mut limited = io::Read::take(&mut self.reader, MAX_LINE_BYTES as u64);
        let count = limited.read_until(b'\n', &mut self.line).map_err(lost)?;
        if count == 0 {
            return Ok(None);
        }
        let message = serde_json::from_slice(&self.line);
        message.map(Some).map_err(|_| "the other end is no pumice perf of this version".to_owned())
    }
}

/// An answer of the wrong kind.
pub(crate) fn unexpected(reply: &Reply) -> String {
    format!("the other end answered out of turn: {reply:?}")
}

#[allow(clippy::needless_pass_by_value, reason = "fits map_err")]
fn lost(error: io::Error) -> String {
    if error.kind() == io::ErrorKind::WouldBlock {
        return format!("the other end has not answered for {} s; does its process run?", PATIENCE.as_secs());
    }
    format!("the connection to the other end failed: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_conversation() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = listener.local_addr().expect("an address");
        let mut client = Control::new(TcpStream::connect(to).expect("a connection")).expect("options");
        let mut server = Control::new(listener.accept().expect("a connection").0).expect("options");
        assert!(!server.spoken_to());
        client.send(&Request::Stop { sent: 7 }).expect("sent");
        client.send(&Request::Count).expect("sent");
        assert!(matches!(server.receive(), Ok(Some(Request::Stop { sent: 7 }))));
        assert!(server.spoken_to());
        assert!(matches!(server.receive(), Ok(Some(Request::Count))));
        server.send(&Reply::Refused("no".to_owned())).expect("sent");
        assert_eq!(client.ask(&Request::Count).map(|_| ()), Err("no".to_owned()));
        server.send(&Reply::Refused("a queue pair failed".to_owned())).expect("sent");
        assert_eq!(client.last_words().as_deref(), Some("a queue pair failed"));
        assert_eq!(client.last_words(), None, "nothing comes any more");
        drop(client);
        assert!(matches!(server.receive(), Ok(Some(Request::Count))), "what was asked");
        assert!(matches!(server.receive::<Request>(), Ok(None) | Err(_)));
    }
}

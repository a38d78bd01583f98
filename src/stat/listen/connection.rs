//! One connection: a request within its time and its size, and one answer.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use super::super::metrics::Format;
use super::request::{MetricsRequest, Refusal, read};

/// The longest head of a request, in bytes.
const MAX_HEAD: usize = 8192;
/// How long a request may take to come.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// How long a client may take to read its answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// How long, and how many bytes, a client that is refused is still listened to: if the kernel has bytes that
/// were not read when the connection ends, the client may not see its answer.
const LINGER_TIME: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 262_144;

/// Answers one request with what `metrics` makes, or with a sentence.
pub(super) fn answer(mut stream: TcpStream, metrics: impl FnOnce(Format) -> Result<String, String>) {
    let asked = match request(&mut stream) {
        Ok(asked) => asked,
        Err(Some(refusal)) => return refuse(stream, &refusal),
        Err(None) => return,
    };
    match metrics(asked.format) {
        Ok(text) => {
            let head = head(200, asked.format.content_type(), text.len());
            let deadline = Instant::now() + ANSWER_TIME;
            let _ = send(&mut stream, head.as_bytes(), deadline);
            if !asked.head_only {
                let _ = send(&mut stream, text.as_bytes(), deadline);
            }
        }
        Err(why) => refuse(stream, &Refusal::new(503, why)),
    }
}

/// Says why there is no answer, and ends the connection.
pub(super) fn refuse(mut stream: TcpStream, refusal: &Refusal) {
    if say(&mut stream, refusal).is_err() || stream.shutdown(Shutdown::Write).is_err() {
        return;
    }
    let (deadline, mut bytes, mut left) = (Instant::now() + LINGER_TIME, [0; 4096], LINGER_BYTES);
    while left > 0 {
        match receive(&mut stream, &mut bytes, deadline) {
            Ok(0) | Err(ReadError::Late | ReadError::Gone) => return,
            Ok(count) => left = left.saturating_sub(count),
            Err(ReadError::Again) => {}
        }
    }
}

/// Says why there is no answer.
///
/// # Errors
/// The client does not read, or has gone.
pub(super) fn say(stream: &mut TcpStream, refusal: &Refusal) -> io::Result<()> {
    let text = format!("{}\n", refusal.sentence);
    let head = head(refusal.status, "text/plain; charset=utf-8", text.len());
    send(stream, format!("{head}{text}").as_bytes(), Instant::now() + LINGER_TIME)
}

/// The request; an error without a refusal if the client has gone.
fn request(stream: &mut TcpStream) -> Result<MetricsRequest, Option<Refusal>> {
    let deadline = Instant::now() + REQUEST_TIME;
    let (mut bytes, mut length) = ([0; MAX_HEAD], 0);
    loop {
        let Some(room @ [_, ..]) = bytes.get_mut(length..) else {
            let sentence = format!("the head of the request is longer than {MAX_HEAD} bytes");
            return Err(Some(Refusal::new(431, sentence)));
        };
        match receive(stream, room, deadline) {
            Ok(0) | Err(ReadError::Gone) => return Err(None),
            Ok(count) => length += count,
            Err(ReadError::Again) => continue,
            Err(ReadError::Late) => {
                let sentence = format!("the request took longer than {} s", REQUEST_TIME.as_secs());
                return Err(Some(Refusal::new(408, sentence)));
            }
        }
        if let Some(request) = read(bytes.get(..length).unwrap_or(&[]))? {
            return Ok(request);
        }
    }
}

enum ReadError {
    Again,
    Late,
    Gone,
}

fn receive(stream: &mut TcpStream, room: &mut [u8], deadline: Instant) -> Result<usize, ReadError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ReadError::Late);
    }
    stream.set_read_timeout(Some(left)).map_err(|_| ReadError::Gone)?;
    stream.read(room).map_err(|error| match error.kind() {
        // A signal, or the time: the next look at the clock tells.
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => ReadError::Again,
        _ => ReadError::Gone,
    })
}

fn send(stream: &mut TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = bytes.get(count..).unwrap_or(&[]),
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn head(status: u16, content_type: &str, length: usize) -> String {
    let reason = match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        _ => "Service Unavailable",
    };
    let allow = if status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
    format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{allow}\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
}

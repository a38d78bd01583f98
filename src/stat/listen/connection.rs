//! Serves one connection: a request within its time and its size, and one answer.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use super::super::metrics::MetricsFormat;
use super::request::{HttpRefusal, MetricsRequest, read};

/// Maximum length of the head of a request, in bytes.
const MAX_HEAD: usize = 8192;
/// Time within which a request has to arrive.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// Time within which a client has to read its answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Time for which the input of a refused client is still read: if the kernel has unread bytes when the
/// connection ends, the client may not see its answer.
const LINGER_TIME: Duration = Duration::from_secs(1);
/// Maximum number of bytes that are read from a refused client.
const LINGER_BYTES: usize = 262_144;

/// Answers one request with the result of `metrics`, or with a sentence.
pub(super) fn answer(mut stream: TcpStream, metrics: impl FnOnce(MetricsFormat) -> Result<String, String>) {
    let parsed = match request(&mut stream) {
        Ok(parsed) => parsed,
        Err(Some(refusal)) => return refuse(stream, &refusal),
        Err(None) => return,
    };
    match metrics(parsed.format) {
        Ok(text) => {
            let head = head(200, parsed.format.content_type(), text.len());
            let deadline = Instant::now() + ANSWER_TIME;
            let _ = send(&mut stream, head.as_bytes(), deadline);
            if !parsed.head_only {
                let _ = send(&mut stream, text.as_bytes(), deadline);
            }
        }
        Err(why) => refuse(stream, &HttpRefusal::new(503, why)),
    }
}

/// Sends the reason why there is no answer, and ends the connection.
pub(super) fn refuse(mut stream: TcpStream, refusal: &HttpRefusal) {
    if send_refusal(&mut stream, refusal).is_err() || stream.shutdown(Shutdown::Write).is_err() {
        return;
    }
    let (deadline, mut bytes, mut left) = (Instant::now() + LINGER_TIME, [0; 4096], LINGER_BYTES);
    while left > 0 {
        match receive(&mut stream, &mut bytes, deadline) {
            Ok(0) | Err(ReadError::Late | ReadError::Closed) => return,
            Ok(count) => left = left.saturating_sub(count),
            Err(ReadError::Again) => {}
        }
    }
}

/// Sends the reason why there is no answer.
///
/// # Errors
/// The client does not read, or has gone.
pub(super) fn send_refusal(stream: &mut TcpStream, refusal: &HttpRefusal) -> io::Result<()> {
    let text = format!("{}\n", refusal.sentence);
    let head = head(refusal.status, "text/plain; charset=utf-8", text.len());
    send(stream, format!("{head}{text}").as_bytes(), Instant::now() + LINGER_TIME)
}

/// Reads the request; fails without a refusal if the client has gone.
fn request(stream: &mut TcpStream) -> Result<MetricsRequest, Option<HttpRefusal>> {
    let deadline = Instant::now() + REQUEST_TIME;
    let (mut bytes, mut length) = ([0; MAX_HEAD], 0);
    loop {
        let Some(room @ [_, ..]) = bytes.get_mut(length..) else {
            let sentence = format!("the head of the request is longer than {MAX_HEAD} bytes");
            return Err(Some(HttpRefusal::new(431, sentence)));
        };
        match receive(stream, room, deadline) {
            Ok(0) | Err(ReadError::Closed) => return Err(None),
            Ok(count) => length += count,
            Err(ReadError::Again) => continue,
            Err(ReadError::Late) => {
                let sentence = format!("the request took longer than {} s", REQUEST_TIME.as_secs());
                return Err(Some(HttpRefusal::new(408, sentence)));
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
    Closed,
}

fn receive(stream: &mut TcpStream, room: &mut [u8], deadline: Instant) -> Result<usize, ReadError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ReadError::Late);
    }
    stream.set_read_timeout(Some(left)).map_err(|_| ReadError::Closed)?;
    stream.read(room).map_err(|error| match error.kind() {
        // A signal, or the end of the time, which the next check of the clock finds.
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => ReadError::Again,
        _ => ReadError::Closed,
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

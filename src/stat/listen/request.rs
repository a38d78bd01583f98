//! Parses a request from the network, and decides whether it gets an answer. Everything in it is hostile.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::super::metrics::MetricsFormat;

/// Path of the metrics.
pub(super) const PATH: &str = "/metrics";
/// Maximum number of lines of a request's head.
const MAX_HEADERS: usize = 64;

/// A request that gets the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MetricsRequest {
    /// The method is HEAD: only the head of the answer is sent.
    pub(super) head_only: bool,
    pub(super) format: MetricsFormat,
}

/// The reason why a request gets no metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HttpRefusal {
    /// Status code of HTTP.
    pub(super) status: u16,
    pub(super) sentence: String,
}

impl HttpRefusal {
    pub(super) fn new(status: u16, sentence: impl Into<String>) -> HttpRefusal {
        HttpRefusal { status, sentence: sentence.into() }
    }
}

/// Parses a head that may be incomplete; returns `None` if more must arrive.
pub(super) fn read(bytes: &[u8]) -> Result<Option<MetricsRequest>, HttpRefusal> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => return Ok(None),
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => {
            return Err(HttpRefusal::new(431, format!("the request has more than {MAX_HEADERS} headers")));
        }
        Err(error) => return Err(HttpRefusal::new(400, format!("this is no request of HTTP/1.1: {error}"))),
    }
    let named = |name: &str| {
        let of_name = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
        of_name.map(|header| str::from_utf8(header.value).unwrap_or("")).collect::<Vec<&str>>()
    };
    check_host(&named("host"))?;
    let path = request.path.unwrap_or("");
    if path.split('?').next() != Some(PATH) {
        return Err(HttpRefusal::new(404, format!("there is nothing here: the metrics are at {PATH}")));
    }
    let head_only = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(HttpRefusal::new(405, "only GET and HEAD are answered")),
    };
    Ok(Some(MetricsRequest { head_only, format: format(&named("accept").join(",")) }))
}

/// Refuses host names other than those of loopback. Such a request comes from a page in a browser whose name
/// now resolves to this host (DNS rebinding), and whose scripts must not read the metrics.
fn check_host(hosts: &[&str]) -> Result<(), HttpRefusal> {
    let [host] = hosts else {
        return Err(HttpRefusal::new(400, "the request must have one Host header"));
    };
    if is_loopback(host) {
        return Ok(());
    }
    let sentence =
        "the Host header must be localhost or an address of loopback: use http://127.0.0.1 with the port";
    Err(HttpRefusal::new(421, sentence))
}

/// Reports whether a host is `localhost` or an address of loopback, with or without a port.
fn is_loopback(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, "")) => return is_v6_loopback(name),
        Some((name, rest)) => match rest.strip_prefix(':') {
            Some(port) if is_v6_loopback(name) => ("localhost", Some(port)),
            _ => return false,
        },
        None => match host.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (host, None),
        },
    };
    let port_is_good =
        port.is_none_or(|port| port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok());
    port_is_good
        && (name.eq_ignore_ascii_case("localhost")
            || name.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback()))
}

fn is_v6_loopback(name: &str) -> bool {
    name.parse::<Ipv6Addr>().is_ok_and(|address| address.is_loopback())
}

/// Chooses OpenMetrics, unless the client prefers the older text format.
fn format(accept: &str) -> MetricsFormat {
    let mut best = [None::<f32>; 3];
    for one in accept.split(',').take(MAX_HEADERS) {
        let mut parts = one.split(';').map(str::trim);
        let index = match parts.next().unwrap_or("").to_ascii_lowercase().as_str() {
            "application/openmetrics-text" => 0,
            "text/plain" | "text/*" => 1,
            "*/*" | "application/*" => 2,
            _ => continue,
        };
        let quality =
            parts.find_map(|part| part.strip_prefix("q=")).map_or(Some(1.0), |text| text.parse().ok());
        let quality = quality.filter(|quality: &f32| (0.0..=1.0).contains(quality)).unwrap_or(0.0);
        if best[index].is_none_or(|other| other < quality) {
            best[index] = Some(quality);
        }
    }
    let [open, older, any] = best;
    let open = open.or(any).unwrap_or(0.0);
    if older.is_some_and(|older| older > open) { MetricsFormat::Older } else { MetricsFormat::OpenMetrics }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(text: &str) -> u16 {
        match read(text.as_bytes()) {
            Ok(Some(_)) => 200,
            Ok(None) => 0,
            Err(refusal) => refusal.status,
        }
    }

    #[test]
    fn only_the_path_the_methods_and_the_names_of_loopback_are_answered() {
        let local = "Host: localhost:9464\r\n\r\n";
        assert_eq!(status(&format!("GET /metrics HTTP/1.1\r\n{local}")), 200);
        assert_eq!(status(&format!("GET /metrics?x=1 HTTP/1.0\r\n{local}")), 200);
        let head = read(format!("HEAD /metrics HTTP/1.1\r\n{local}").as_bytes());
        assert_eq!(head, Ok(Some(MetricsRequest { head_only: true, format: MetricsFormat::OpenMetrics })));
        for path in ["/", "/metrics/", "/metric", "http://localhost/metrics", "*", "/%6detrics"] {
            assert_eq!(status(&format!("GET {path} HTTP/1.1\r\n{local}")), 404, "{path}");
        }
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get"] {
            assert_eq!(status(&format!("{method} /metrics HTTP/1.1\r\n{local}")), 405, "{method}");
        }
        for hosts in ["", "Host: localhost\r\nhost: localhost\r\n", "Hosts: localhost\r\n"] {
            assert_eq!(status(&format!("GET /metrics HTTP/1.1\r\n{hosts}\r\n")), 400, "{hosts}");
        }
    }

    #[test]
    fn other_hosts_are_refused() {
        let good =
            ["localhost", "LocalHost:1", "127.0.0.1", "127.9.9.9:9464", "[::1]", "[::1]:9464", "localhost:"];
        let good: Vec<&str> = good.into_iter().filter(|host| !is_loopback(host)).collect();
        assert_eq!(good, ["localhost:"], "a port is a number");
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "[::2]",
            "[::1]x",
            "[::1",
            "::1",
            "localhost:x",
            "localhost:99999",
            "127.1",
            "0x7f000001",
            "a@localhost",
            "localhost:1:2",
            "localhost:+1",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn what_is_no_request_is_refused_and_what_is_cut_is_waited_for() {
        let complete = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        for length in 0..complete.len() {
            assert_eq!(status(&complete[..length]), 0, "{length}");
        }
        for text in ["\u{16}\u{3}\u{1}", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET /metrics\r\n\r\n", "{}\n"] {
            assert_eq!(status(text), 400, "{text}");
        }
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(65));
        assert_eq!(status(&many), 431);
        assert_eq!(status("GET /metrics HTTP/1.1\r\nHost: \u{e9}\r\n\r\n"), 421);
    }

    #[test]
    fn the_older_text_is_for_those_who_ask_for_it() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        for accept in
            ["", "*/*", prometheus, "application/openmetrics-text", "text/html,*/*;q=0.8", "text/plain;q=x"]
        {
            assert_eq!(format(accept), MetricsFormat::OpenMetrics, "{accept}");
        }
        for accept in
            ["text/plain", "text/plain;version=0.0.4;q=0.5,*/*;q=0.1", "text/*", "text/html,text/plain;q=0.2"]
        {
            assert_eq!(format(accept), MetricsFormat::Older, "{accept}");
        }
    }
}
